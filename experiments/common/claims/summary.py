"""Counts of verdicts and claims in words: what README, documentation, status and report say in the same way."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal, get_args

from experiments.common.claims.ledger import PaperClaim, claims_by_id, ledgers
from experiments.common.claims.verdicts import JUDGED, Outcome, Verdict, span

Kind = Literal["orderings", "ranges", "numbers", "set-ups and formulas"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Column = Outcome | Literal["restated"]
COLUMNS: tuple[Column, ...] = (*JUDGED, "restated", "not comparable", "not attempted")
"""What claims are counted under: the outcome, or "restated" for those that could hardly have come out otherwise."""
PAPERS = {
    "ssfusion": "SSFusion", "acpsgd": "ACP-SGD", "mergecomp": "MergeComp", "micro": "MiCRO", "s2reducer": "S2 Reducer",
}  # fmt: skip
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
    unit = {"percent": "%", "qualitative": "", "count": ""}.get(claim.unit or "", claim.unit or "")
    return span(*claim.bounds, unit)


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
