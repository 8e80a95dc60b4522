"""A Verdict: what one claim of a paper comes to here, from one source of numbers, with the reason and the command.

Verdicts and claims are counted here, too, in the same words for README, documentation, status and report.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from experiments.common.claims.ledger import PaperClaim, claims_by_id, ledgers
from ssfx.advice.ranked import surely_less

Outcome = Literal["agrees", "partly", "within error", "disagrees", "not comparable", "not attempted"]
JUDGED: tuple[Outcome, ...] = ("agrees", "partly", "within error", "disagrees")
"""Outcomes of a comparison; the others have none."""
ON_ONE_CORE = "seconds on one core"
"""What a value costs that is worked out."""
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
    stated: tuple[float, float] | None = field(default=None, compare=False)
    """The paper's value as a range, (1, 1) for an ordering; None where no numbers were compared."""
    values: tuple[float, ...] = field(default=(), compare=False)
    """Our values, one for each setting and baseline; of an ordering 1 where it holds and 0 where not."""

    def __post_init__(self) -> None:
        if self.outcome != "agrees" and not self.reason:
            raise ValueError(f"{self.claim}: {self.outcome} needs a reason")


def counted(verdicts: Sequence[Verdict]) -> str:
    """Return how many verdicts came out how, in words."""
    counts = Counter(verdict.outcome for verdict in verdicts)
    return ", ".join(f"{counts[word]} {word}" for word in get_args(Outcome) if counts[word]) or "no claims"


def outcome_of(stated: tuple[float, float], ours: tuple[float, float], relative: float = 0.0) -> Outcome:
    """Return "agrees" if our range lies inside the stated one, widened by `relative`, "partly" if they overlap."""
    low, high = stated[0] - abs(stated[0]) * relative, stated[1] + abs(stated[1]) * relative
    if low <= ours[0] and ours[1] <= high:
        return "agrees"
    return "partly" if ours[0] <= high and low <= ours[1] else "disagrees"


def outcome_of_order(leads: Sequence[float], error: float | None) -> tuple[Outcome, str]:
    """Return the outcome of an order of simulated times, and which pairs are too close to call; "" without any.

    `leads`: by how much each is faster than the next, as a share, negative where it is slower. An order agrees where
    all pairs hold under both errors, disagrees where one is surely the other way round, and holds partly where some
    are too close to call. Where all are, it is not tested: methods without any effect would pass, too. Without an error
    known, the signs decide.
    """
    if error is None:
        return "agrees" if all(lead > 0 for lead in leads) else "disagrees", ""
    if any(surely_less(1 + lead, 1.0, error) for lead in leads):
        return "disagrees", ""
    near = sorted(abs(lead) for lead in leads if not surely_less(1.0, 1 + lead, error))
    if not near:
        return "agrees", ""
    least, most = (f"{100 * end:.1f}" for end in (near[0], near[-1]))
    by = f"{least} %" if least == most else f"{least} to {most} %"
    why = (
        f"{len(near)} of {len(leads)} pairs differ by {by} only, less than two simulated times may be off "
        f"({error:.0%} each on average), so that they are too close to call"
    )
    if len(near) < len(leads):
        return "partly", why
    return "not comparable", f"{why}: methods without any effect would pass, too"


def compared(
    claim: str,
    stated: float | tuple[float, float],
    ours: float | tuple[float, float],
    *,
    relative: float = 0.0,
    decimals: int | None = None,
    unit: str = "",
    source: Source = "computed",
    calibration: str = "",
    reason: str = "",
) -> Verdict:
    """Return the verdict on a number: our range against the stated one, widened by `relative` for printed digits.

    Agrees: ours lies inside. Partly: they overlap. Disagrees: they do not; then the reason, if none is given, is the
    difference. A range is (low, high). With `decimals`, ours is computed exactly, and agrees where it rounds to what
    the paper prints with so many.
    """
    stated, ours = (pair if isinstance(pair, tuple) else (pair, pair) for pair in (stated, ours))
    limits, paper = stated, f"the paper has {span(*stated, unit)}"
    if decimals is not None:
        half = 0.5 * 10.0**-decimals * (1 + 1e-9)
        limits, paper = (stated[0] - half, stated[1] + half), f"the paper prints {stated[0]:g}"
    outcome, here = outcome_of(limits, ours, relative), span(*ours, unit)
    why = reason or ("" if outcome == "agrees" else f"ours is {here}, {paper}")
    return Verdict(claim, outcome, here, source, calibration, why, stated=stated, values=ours)


def span(low: float, high: float, unit: str = "") -> str:
    """Return a range in words, "1.2 to 1.5 ms", or one number where both ends print alike; fractions as percent."""
    factor, name = (100.0, " %") if unit == "fraction" else (1.0, f" {unit}" if unit else "")
    # Four digits would hide the last one that a paper prints of a number above a thousand.
    first, last = (
        f"{end:.4g}" if abs(end) < 1000 else f"{end:.1f}".removesuffix(".0") for end in (factor * low, factor * high)
    )
    return f"{first}{name}" if first == last else f"{first} to {last}{name}"


def headline(verdicts: Sequence[Verdict]) -> Mapping[str, Verdict]:
    """Return the one verdict that counts for each claim: real runs before computed before simulated before published.

    Of simulated ones the nominal calibration counts, not what others give, also where it cannot tell: choosing by
    outcome would be choosing the result. A source that could not compare does not stand before one that could.
    """
    rank = {"measured": 0, "emulated": 1, "computed": 2, "simulated": 3, "published": 4, "restated": 5, "none": 6}
    of_source: dict[tuple[str, str], Verdict] = {}
    for verdict in sorted(verdicts, key=lambda one: (one.calibration != "nominal", one.calibration)):
        of_source.setdefault((verdict.claim, verdict.source), verdict)
    first: dict[str, Verdict] = {}
    for verdict in sorted(of_source.values(), key=lambda one: (one.outcome not in JUDGED, rank[one.source])):
        first.setdefault(verdict.claim, verdict)
    return first


Kind = Literal["orderings", "ranges", "numbers", "set-ups and formulas"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Column = Outcome | Literal["restated"]
COLUMNS: tuple[Column, ...] = (*JUDGED, "restated", "not comparable", "not attempted")
"""What claims are counted under: the outcome, or "restated" for those that could hardly have come out otherwise."""
PAPERS = {
    "ssfusion": "SSFusion",
    "acpsgd": "ACP-SGD",
    "mergecomp": "MergeComp",
    "micro": "MiCRO",
    "s2reducer": "S2 Reducer",
}
"""Papers by the name of their ledger, in the order in which they are shown."""


def kind(claim: PaperClaim) -> Kind:
    """Return what a claim says: that something is larger than something else, a range, a number, or a setting."""
    if claim.type in ("setup", "background", "formula"):
        return "set-ups and formulas"
    if claim.bounds is None:
        return "orderings"
    return "numbers" if claim.bounds[0] == claim.bounds[1] else "ranges"


def paper_says(claim: PaperClaim) -> str:
    """Return the paper's value in words, "as stated" where there is no number."""
    if claim.bounds is None:
        return "as stated"
    unit, *note = (claim.unit or "").split(" (")
    said = span(*claim.bounds, {"percent": "%", "qualitative": "", "count": ""}.get(unit, unit))
    return " (".join([said, *note])


def papers() -> dict[str, str]:
    """Return the papers that have a ledger, in the order in which they are shown, with their names."""
    known = {ledger.paper for ledger in ledgers()}
    return {
        name: PAPERS.get(name, name)
        for name in (*(one for one in PAPERS if one in known), *sorted(known - set(PAPERS)))
    }


def column(verdict: Verdict) -> Column:
    """Return what a claim is counted under."""
    return "restated" if verdict.source == "restated" and verdict.outcome in JUDGED else verdict.outcome


def counts(claims: Iterable[PaperClaim], verdicts: Mapping[str, Verdict]) -> Counter[Column]:
    """Return how many of the claims are counted under which column."""
    return Counter(column(verdicts[claim.id]) for claim in claims)


def by_paper(verdicts: Mapping[str, Verdict]) -> dict[str, Counter[Column]]:
    """Return the counts of every paper's claims."""
    claims = {ledger.paper: ledger.claims for ledger in ledgers()}
    return {paper: counts(claims[paper], verdicts) for paper in papers()}


def by_kind(verdicts: Mapping[str, Verdict]) -> dict[Kind, Counter[Column]]:
    """Return the counts of orderings, ranges, numbers and set-ups, of all papers."""
    every = claims_by_id().values()
    return {one: counts([claim for claim in every if kind(claim) == one], verdicts) for one in KINDS}


def by_source(verdicts: Mapping[str, Verdict]) -> dict[str, Counter[Column]]:
    """Return the counts of the tested claims by where our value comes from; simulated ones with their calibration."""
    counted: dict[str, Counter[Column]] = {}
    for verdict in verdicts.values():
        if column(verdict) in JUDGED:
            source = f"{verdict.source} ({verdict.calibration})" if verdict.calibration else verdict.source
            counted.setdefault(source, Counter())[verdict.outcome] += 1
    return dict(sorted(counted.items()))


def tested(counted: Counter[Column]) -> int:
    """Return how many claims were held against a value of ours that could have come out otherwise."""
    return sum(counted[outcome] for outcome in JUDGED)


def sentence(counted: Counter[Column]) -> str:
    """Return counts in words: how many of the tested claims agree, partly and not, and how many were not tested."""
    return (
        f"{counted['agrees']} of {tested(counted)} tested claims agree, {counted['partly']} partly, "
        f"{counted['within error']} within the simulator's error, {counted['disagrees']} disagree; "
        f"{counted['restated']} restate a set-up or a definition, {counted['not comparable']} not comparable, "
        f"{counted['not attempted']} not attempted"
    )


def total(verdicts: Mapping[str, Verdict]) -> Counter[Column]:
    """Return the counts of all claims."""
    return sum(by_paper(verdicts).values(), Counter())
