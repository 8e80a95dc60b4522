"""The Answer: does compression help here, by how much at most, for what bandwidth it would, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

from ssfx.advice.break_even import BreakEven, BreakEvens
from ssfx.advice.ranked import Entry, Ranking
from ssfx.advice.setting import TUNED
from ssfx.core.numbers import rounded
from ssfx.schemes import schemes

WORTH = 0.01
"""A gain below this share of the step is none."""

VAGUE = 0.5
"""A mean error from which on a time says nothing."""

SIXTEEN_BIT = "ddp_fp16"
"""The scheme that sends dense gradients in 16 bits."""

Word = Literal["yes", "no", "too close to call", "not known"]


@dataclass(frozen=True)
class Answer:
    """`best` is the fastest scheme that compresses and has a validated error and a record of quality; None without one.

    `most` is the share of dense DDP's step that anything could win, by a device alone. `break_even` is that of `best`,
    None where exchanges were measured and so are no function of a bandwidth, and where `best` chooses dense itself.
    """

    word: Word
    best: Entry | None
    most: float
    break_even: BreakEven | None
    unproven: tuple[Entry, ...]
    """Schemes that are faster than tuned dense by their times, of unknown quality or with unvalidated times."""
    faster: tuple[Entry, ...]
    unclear: tuple[Entry, ...]
    slower: tuple[Entry, ...]
    vague: tuple[Entry, ...] = ()
    """Schemes whose times were so far off where they were compared that they have no place."""

    @property
    def reason(self) -> str:
        """One or two sentences: what dense training loses, what the best scheme gains."""
        most = f"nothing can make a step more than {self.most:.1%} shorter than tuned dense does"
        if self.best is None:
            if self.unproven:
                return f"No scheme with a validated time and a record of quality compresses here; {most}."
            if any(one.compressors for one in (*self.unclear, *self.slower)):
                return f"No scheme that compresses is faster by these times; {most}."
            return f"Every scheme decided to send all gradients dense; {most}."
        gain = 1 - 1 / self.best.speedup_vs_dense
        if self.word == "yes":
            return f"{self.best.named} makes a step {gain:.1%} shorter than tuned dense; {most}."
        if gain >= WORTH:
            return f"{self.best.named} seems {gain:.1%} shorter a step, within the error of the simulator; {most}."
        speed = f"{self.best.speedup_vs_dense:.2f}x of dense"
        return f"The best scheme of known quality that compresses is {self.best.scheme}, {speed}; {most}."

    def bandwidth(self, gbps: float) -> str:
        """Return for which bandwidth the answer would change; `gbps` is the rate here."""
        if self.best is not None and schemes[self.best.scheme].chooses:
            return f"{self.best.scheme} chooses at every bandwidth, dense included: it is never slower by these times."
        if self.break_even is None or self.best is None:
            return "" if self.best is None else "Exchanges here were measured, so other bandwidths have no answer."
        name, even = self.best.scheme, self.break_even.gbps
        if even == 0:
            return f"A step of {name} is not shorter than a dense one at any bandwidth."
        if even == inf:
            return (
                f"A step of {name} is shorter than a dense one at every bandwidth up to 10000 Gbit/s, by these times."
            )
        below = f"below {rounded(even, 3)} Gbit/s a link"
        return f"A step of {name} is shorter than a dense one {below}; here it is {gbps:g}."


def answer_of(advice: Ranking) -> Answer:
    """Return what the ranking comes to: yes where the best scheme that compresses is surely faster than tuned dense."""
    dense, best = advice.dense, advice.recommendable[0] if advice.recommendable else None
    unproven = tuple(
        one
        for one in advice.compressing
        if one not in advice.recommendable and one.iteration_s < dense.iteration_s and not _same(one, dense)
    )
    vague = tuple(
        one for one in advice.entries if advice.bar(one) >= VAGUE and one is not dense and one not in unproven
    )
    others = [entry for entry in advice.entries if entry is not dense and entry not in (*unproven, *vague)]
    unclear = tuple(one for one in others if advice.unclear(one) or _same(one, dense))
    rest = [one for one in others if one not in unclear]
    gain = 1 - 1 / best.speedup_vs_dense if best else 0.0
    word: Word = "not known" if best is None and unproven else "no"
    if best is not None and gain >= WORTH:
        word = "too close to call" if advice.unclear(best) else "yes"
    even = None
    if best is not None and not schemes[best.scheme].chooses:
        found = BreakEvens(advice.setting, [one.scheme for one in advice.entries if one.scheme in TUNED])
        even = found.of(best.scheme) if found.possible else None
    return Answer(
        word,
        best,
        max(0.0, 1 - advice.setting.profile.alone_s() / dense.iteration_s),
        even,
        unproven,
        tuple(one for one in rest if one.iteration_s < dense.iteration_s),
        unclear,
        tuple(one for one in rest if one.iteration_s >= dense.iteration_s),
        vague,
    )


def _same(one: Entry, dense: Entry) -> bool:
    return abs(one.iteration_s / dense.iteration_s - 1) < WORTH / 2  # it is printed as 1.00x


def listed(entries: Sequence[Entry], most: int = 8) -> str:
    """Return the entries as "name 1.07x, ...", at most so many of them, and dense in 16 bit wherever it is."""
    chosen = [one for i, one in enumerate(entries) if i < most or one.scheme == SIXTEEN_BIT]
    shown = ", ".join(f"{one.scheme} {one.speedup_vs_dense:.2f}x" for one in chosen)
    more = f", and {len(entries) - len(chosen)} more" if len(entries) > len(chosen) else ""
    return f"{shown}{more}" if entries else "none"
