"""What validation should reach, and whether it does: every goal with what was found, met or missed."""

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.common.validation.exchanges import NAME as EXCHANGES
from experiments.common.validation.groups import Group
from experiments.common.validation.one_gpu import COMPRESSORS, STEPS
from experiments.common.validation.quality import BY_RATIO, BY_TASK

BLIND = "recorded"
"""Name of the group of recorded runs that are simulated from calibration alone."""

MOST_ERROR = {BLIND: 0.05, "ACP-SGD times": 0.08, "MergeComp": 0.07}
"""Greatest mean error that a group should have."""
MOST_BEYOND = 0.15
"""Greatest mean error of the part of recorded iterations beyond compute, simulated from calibration alone."""
LEAST_ORDERED = 0.85
"""Least share of right orderings of all published groups together."""


@dataclass(frozen=True)
class Goal:
    """A limit for an error (at_most) or for a share that is right (at least), and what was found."""

    what: str
    limit: float
    found: float
    at_most: bool = True

    @property
    def met(self) -> bool:
        """True when what was found keeps the limit."""
        return self.found <= self.limit if self.at_most else self.found >= self.limit

    def __str__(self) -> str:
        word = "at most" if self.at_most else "at least"
        return f"{self.what} {word} {100 * self.limit:.0f} %: {100 * self.found:.1f} %"


def goals(groups: Sequence[Group]) -> list[Goal]:
    """Return the goals about `groups`; those about other groups are left out."""
    found = []
    for group in groups:
        if group.name in MOST_ERROR:
            found.append(Goal(f"mean error, {group.name}", MOST_ERROR[group.name], group.total.mean))
        if group.name == BLIND and (beyond := group.beyond()):
            found.append(Goal(f"mean error, {group.name}, part beyond compute", MOST_BEYOND, beyond.mean))
    right, of = orderings(published(groups))
    if of:
        found.append(Goal("right orderings, published", LEAST_ORDERED, right / of, at_most=False))
    return found


def published(groups: Sequence[Group]) -> list[Group]:
    """Return the groups of published numbers."""
    others = (BLIND, EXCHANGES, STEPS, COMPRESSORS, BY_TASK, BY_RATIO)
    return [group for group in groups if not group.name.startswith(others)]


def orderings(groups: Sequence[Group]) -> tuple[int, int]:
    """Return how many orderings come out right, and of how many that matter."""
    return sum(group.total.ordered for group in groups), sum(group.total.orderings for group in groups)
