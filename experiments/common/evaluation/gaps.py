"""Gaps of quality to dense training on small networks: their sign and rank beside those that a paper prints.

The level of a quality is of the paper's network and data. What a reduced scale can show is on which side of dense
training a method ends, and whether the methods stand in the paper's order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from experiments.common.claims.verdicts import Outcome, Verdict
from experiments.common.evaluation.quality_curves import SCALE, compared
from ssfx.core.rows import Row
from ssfx.lab.calibration import step_law

LONG = step_law.EXPERIMENT
"""The experiment of long runs."""
EVEN = 0.005
"""Relative gap that a paper prints up to which it has no loss."""
FEWEST = 2
"""Seeds of a method and of its baseline from which on a gap is judged."""


@dataclass(frozen=True)
class Finals:
    """Final quality of every seed by method, higher is better; `dense` is the baseline, `words` how long it trained."""

    values: Mapping[str, Sequence[float]]
    words: str
    dense: str = "ddp"

    def knows(self, method: str) -> bool:
        """Return whether method and baseline have enough seeds."""
        return all(len(self.values.get(name, ())) >= FEWEST for name in (method, self.dense))


def judged_gaps(sets: Sequence[Finals], claims: Mapping[str, str], printed: Mapping[str, float]) -> list[Verdict]:
    """Return a verdict on the claim of each method that some set knows; of several sets the first one counts.

    `claims`: method -> id; `printed`: method -> the paper's quality over that of its baseline. The sign holds where the
    gap stands out of the noise of the seeds on the paper's side, or within it where the paper's is even; the rank among
    the methods of the set holds where it is the paper's, ties within the noise. Agrees with both, partly with one,
    disagrees with neither where one of them is clearly otherwise; where noise leaves both open the scale shows
    nothing: not comparable.
    """
    found = []
    for method, claim in claims.items():
        if known := next((one for one in sets if one.knows(method) and method in printed), None):
            found.append(_judged(claim, method, known, printed))
    return found


def _judged(claim: str, method: str, known: Finals, printed: Mapping[str, float]) -> Verdict:
    gap = printed[method] - 1
    wanted = "equal" if abs(gap) <= EVEN else "above" if gap > 0 else "below"
    word, said = compared(known.values[method], known.values[known.dense])
    others = [name for name in printed if name not in (method, known.dense) and known.knows(name)]
    own = fmean(known.values[method])
    rank = 1 + sum(fmean(known.values[name]) > own for name in others)
    theirs = 1 + sum(printed[name] > printed[method] for name in others)
    ties = [name for name in others if printed[name] == printed[method]]
    words = [compared(known.values[name], known.values[method])[0] for name in others]
    apart = any(word != "equal" for name, word in zip(others, words, strict=True) if name in ties)
    first, last = 1 + words.count("above"), 1 + len(others) - words.count("below")
    placed = bool(others) and theirs <= rank <= theirs + len(ties) and not apart
    held = (word == wanted) + placed
    against = (
        word not in (wanted, "equal")
        or apart
        or last < theirs
        or theirs + len(ties) < first
        or (wanted == "equal" and word != "equal")
    )
    outcome: Outcome = (
        "agrees" if held == 2 else "partly" if held else "disagrees" if against else "not comparable"
    )  # fmt: skip
    place = f"rank {rank} of {1 + len(others)}, the paper's {theirs}" if others else "no other method to rank it with"
    reason = f"Reduced scale ({known.words}, {SCALE}): sign and rank of the gap, {wanted} in the paper, not its level."
    return Verdict(claim, outcome, f"gap {said}, {word}; {place}", "measured", "", reason)


def longest(rows: Sequence[Row], label: Callable[[Row], str], wanted: set[str]) -> list[Row]:
    """Return the rows of long runs where these have FEWEST seeds of every method in `wanted`, else the other ones.

    Of long runs, which have many methods, only those that `label` names are returned; it names them as the figure does.
    """
    long = [row for row in rows if row.case.experiment == LONG and label(row)]
    enough: dict[str, dict[str, set[int]]] = {}
    for row in long:
        enough.setdefault(row.case.model, {}).setdefault(label(row), set()).add(row.case.seed)
    good = {model for model, seeds in enough.items() if all(len(seeds.get(name, ())) >= FEWEST for name in wanted)}
    if good:
        return [row for row in long if row.case.model in good]
    return [row for row in rows if row.case.experiment != LONG]


def trained(rows: Sequence[Row]) -> str:
    """Return how long the runs trained, and on how many seeds at most, in words."""
    steps = sorted({row.case.steps for row in rows})
    said = f"{steps[0]:,}" if len(steps) == 1 else f"{steps[0]:,} to {steps[-1]:,}"
    return f"{said} steps, {len({row.case.seed for row in rows})} seeds"
