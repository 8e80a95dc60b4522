"""The pure rules of SparDL: which blocks go where and when, and how many entries a team brings to a gather.

Source: D-33.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


def scatter_rounds(members: int) -> list[tuple[int, int]]:
    """Return (distance, blocks) of each round of the reduce-scatter; blocks add up to members - 1.

    In a round of distance D member w sends blocks w + D, w + D + 1, ... to member w + D (all modulo `members`), in one
    message. So what a member has for block j travels along the binary digits of j - w, the high ones first, and reaches
    member j once.
    """
    steps = (members - 1).bit_length()
    distances = [1 << step for step in reversed(range(steps))]
    return [(distance, min(distance, members - distance)) for distance in distances]


@dataclass(frozen=True, slots=True)
class Share:
    """How many entries a rank brings to Bruck's gather across teams (h), and how that number moves.

    `step` is the next move, `sped` that the last one went the right way and the next may be twice as long.
    """

    entries: int
    step: int
    sped: bool = False

    @classmethod
    def start(cls, budget: int, teams: int) -> Share:
        """Return the first one: what fills `budget` if no two teams have an index in common."""
        least = least_share(budget, teams)
        return cls(least, max(1, (budget - least) // 100))

    def after(self, found: int, budget: int, teams: int) -> Share:
        """Return the next one when `found` distinct indices came together: more if there was room, fewer if not."""
        if (found > budget) != (self.step > 0):
            step, sped = (2 * self.step, False) if self.sped else (self.step, True)
        else:
            step, sped = (_half(-self.step) if abs(self.step) > 1 else -self.step), False
        return Share(max(self.entries + step, least_share(budget, teams)), step, sped)

    def within(self, budget: int, teams: int) -> Share:
        """Return it with no more entries than `budget`, and no move longer than the whole way between the bounds.

        The released code bounds neither: while there is room, steps would double without end.
        """
        least = least_share(budget, teams)
        longest = max(1, budget - least)
        entries = min(max(self.entries, least), budget)
        return replace(self, entries=entries, step=min(max(self.step, -longest), longest))


def least_share(budget: int, teams: int) -> int:
    """Return the lower bound of a share: budget / teams, but one entry if any may be sent."""
    return min(budget, max(1, budget // teams))


def _half(step: int) -> int:
    return step // 2 if step > 0 else -(-step // 2)
