"""A Verdict: what one claim of a paper comes to here, from one source of numbers, with the reason and the command."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

Outcome = Literal["agrees", "partly", "disagrees", "not comparable", "not attempted"]
Source = Literal["computed", "measured", "emulated", "simulated", "published", "restated", "none"]
"""Where our value comes from: "computed" is exact, from shapes or formulas, and needs no run; "none" has no value.

"restated": a setting, a definition or an example made after the paper, so that our value could hardly be another.
"""


@dataclass(frozen=True)
class Verdict:
    """One claim compared with one value of ours."""

    claim: str
    """Id in the ledger, as "acpsgd.table1.resnet50_params"."""
    outcome: Outcome
    """Whether our value is what the paper states."""
    ours: str
    """Our value in words with its unit, "" where there is none."""
    source: Source
    """How our value was obtained."""
    calibration: str = ""
    """Of simulated values: nominal, published, ...; "" otherwise."""
    reason: str = ""
    """One sentence: why the outcome is what it is; required unless the claim agrees."""
    command: str = ""
    """What a person types to get the value."""
    cost: str = ""
    """Time and hardware of that command, as "seconds on one core" or "4 GPUs, 2 hours"."""

    def __post_init__(self) -> None:
        if self.outcome != "agrees" and not self.reason:
            raise ValueError(f"{self.claim}: {self.outcome} needs a reason")


def counted(verdicts: Sequence[Verdict]) -> str:
    """Return how many verdicts came out how, in words."""
    counts = Counter(one.outcome for one in verdicts)
    return ", ".join(f"{counts[word]} {word}" for word in get_args(Outcome) if counts[word]) or "no claims"


def compared(
    claim: str,
    stated: tuple[float, float],
    ours: tuple[float, float],
    *,
    relative: float = 0.0,
    unit: str = "",
    source: Source = "computed",
    calibration: str = "",
    reason: str = "",
    command: str = "",
    cost: str = "",
) -> Verdict:
    """Return the verdict on a number: our range against the stated one, widened by `relative` for printed digits.

    Agrees: ours lies inside. Partly: they overlap. Disagrees: they do not; then the reason, if none is given, is the
    difference. Both ranges are (low, high), equal for a single number.
    """
    low, high = stated[0] - abs(stated[0]) * relative, stated[1] + abs(stated[1]) * relative
    inside = low <= ours[0] and ours[1] <= high
    overlap = ours[0] <= high and low <= ours[1]
    outcome: Outcome = "agrees" if inside else "partly" if overlap else "disagrees"
    here = span(*ours, unit)
    why = reason or ("" if outcome == "agrees" else f"ours is {here}, the paper has {span(*stated, unit)}")
    return Verdict(claim, outcome, here, source, calibration, why, command, cost)


def as_printed(
    claim: str, stated: float, ours: float, decimals: int, *, unit: str = "", source: Source = "computed",
    reason: str = "", command: str = "", cost: str = "seconds on one core",
) -> Verdict:  # fmt: skip
    """Return the verdict on a number that is computed exactly: agrees where it rounds to what the paper prints."""
    half = 0.5 * 10.0**-decimals * (1 + 1e-9)
    found = compared(
        claim, (stated - half, stated + half), (ours, ours), unit=unit, source=source, reason=reason, command=command
    )
    why = reason or (
        "" if found.outcome == "agrees" else f"ours is {span(ours, ours, unit)}, the paper prints {stated:g}"
    )
    return replace(found, reason=why, cost=cost)


def span(low: float, high: float, unit: str = "") -> str:
    """Return a range in words, "1.2 to 1.5 ms", or one number where both ends print alike; fractions as percent."""
    factor, name = (100.0, " %") if unit == "fraction" else (1.0, f" {unit}" if unit else "")
    first, last = f"{factor * low:.4g}", f"{factor * high:.4g}"
    return f"{first}{name}" if first == last else f"{first} to {last}{name}"


def headline(verdicts: Sequence[Verdict]) -> Mapping[str, Verdict]:
    """Return the one verdict that counts for each claim: real runs before computed before simulated before published.

    Of simulated ones the nominal calibration counts, whatever others give: choosing by outcome would be choosing the
    result. A source that could not compare does not stand before one that could.
    """
    rank = {"measured": 0, "emulated": 1, "computed": 2, "simulated": 3, "published": 4, "restated": 5, "none": 6}

    def key(one: Verdict) -> tuple[bool, int, bool, str]:
        compared = one.outcome not in ("not comparable", "not attempted")
        return not compared, rank[one.source], one.calibration != "nominal", one.calibration

    found: dict[str, Verdict] = {}
    for one in sorted(verdicts, key=key):
        found.setdefault(one.claim, one)
    return found
