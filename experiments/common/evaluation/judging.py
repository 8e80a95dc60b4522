"""Verdicts on the claims of one artifact: numbers held against printed digits, a reason for the rest."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal

from experiments.common.claims.ledger import PaperClaim, claims_by_id, claims_of
from experiments.common.claims.verdicts import ON_ONE_CORE, Outcome, Source, Verdict, compared, span
from experiments.common.validation.published_steps import stated


def paper_value(claim: PaperClaim) -> str:
    """Return what the paper prints, in words; "" for a claim without a number."""
    if claim.bounds is None:
        return ""
    unit = (claim.unit or "").removesuffix("(time ratio)").strip()
    return span(*claim.bounds, unit)


def half_digit(value: float) -> float:
    """Return half a unit of the last digit of a number as it is printed: 0.05 for 25.6, 0.5 for 67."""
    exponent = Decimal(repr(value)).normalize().as_tuple().exponent
    assert isinstance(exponent, int)
    return 0.5 * 10.0 ** min(exponent, 0)


def held(
    claim_id: str,
    ours: float | tuple[float, float],
    *,
    tolerance: float | None = None,
    reason: str = "",
    source: Source = "computed",
    calibration: str = "",
) -> Verdict:
    """Return the verdict on a number of ours, in the claim's unit, against the stated one.

    What the paper rounds away counts for nothing: half a unit of its last printed digit, or a relative `tolerance`. A
    fraction is printed in percent. An open range, as "more than 11 x", is held against its one side only.
    """
    claim, low_high = claims_by_id()[claim_id], stated(claim_id)
    unit = claim.unit or ""
    words = f"{unit} {claim.statement}"
    bound = "(lower bound)" in words, "(upper bound)" in words
    unit = unit.partition("(")[0].strip()
    if tolerance is None:
        scale = 100 if unit == "fraction" else 1
        slack = max(half_digit(round(scale * end, 9)) / scale for end in low_high)
        top = max(abs(end) for end in low_high)
        tolerance = (slack + 1e-9) / top if top else 0.0
    pair = ours if isinstance(ours, tuple) else (ours, ours)
    limits = low_high
    if bound[0]:
        limits = low_high[0], max(low_high[1], pair[1])
    elif bound[1]:
        limits = min(low_high[0], pair[0]), low_high[1]
    verdict = compared(
        claim_id, limits, pair, relative=tolerance, unit=unit, source=source, calibration=calibration, reason=reason
    )
    if verdict.outcome == "agrees" or reason:
        return verdict
    than = "more than " if bound[0] else "less than " if bound[1] else ""
    return replace(verdict, reason=f"ours is {verdict.ours}, the paper has {than}{span(*low_high, unit)}")


def says(
    claim_id: str,
    outcome: Outcome | bool,
    ours: str,
    reason: str = "",
    *,
    source: Source = "computed",
    calibration: str = "",
) -> Verdict:
    """Return the verdict on a claim without a number: an ordering, a property, a formula."""
    word: Outcome = outcome if isinstance(outcome, str) else "agrees" if outcome else "disagrees"
    why = reason or ("" if word == "agrees" else f"here: {ours}")
    return Verdict(claim_id, word, ours, source, calibration, why)


def absent(
    claim_id: str, reason: str, outcome: Outcome = "not attempted", ours: str = "", source: Source = "computed"
) -> Verdict:
    """Return the verdict on a claim to which no number of ours speaks, with the reason; `source` is that of `ours`."""
    return Verdict(claim_id, outcome, ours, source if ours else "none", reason=reason)


def complete(
    artifacts: Sequence[str], verdicts: Iterable[Verdict], command: str, *, reason: str = "", cost: str = ON_ONE_CORE
) -> Sequence[Verdict]:
    """Return the verdicts with the command that gives them, and one more for every claim of the artifacts without one.

    The ledger's `not_comparable` says why one of those compares nothing, its `not_here`, else `reason`, why the others
    were not attempted. ValueError for a verdict on a claim of
    another artifact, or for two of one claim from one source and calibration.
    """
    claims = {claim.id: claim for artifact in artifacts for claim in claims_of(artifact)}
    by_key: dict[tuple[str, str, str], Verdict] = {}
    for verdict in verdicts:
        key = verdict.claim, verdict.source, verdict.calibration
        if verdict.claim not in claims or key in by_key:
            raise ValueError(f"{', '.join(artifacts)}: {verdict.claim} is judged twice or belongs elsewhere")
        by_key[key] = replace(verdict, command=verdict.command or command, cost=verdict.cost or cost)
    judged = {verdict.claim for verdict in by_key.values()}
    for claim_id in claims:
        if claim_id not in judged:
            known = claims[claim_id]
            why = known.not_comparable or known.not_here or reason or f"no rows yet: {command}"
            outcome: Outcome = "not comparable" if known.not_comparable else "not attempted"
            by_key[claim_id, "none", ""] = replace(absent(claim_id, why, outcome), command=command, cost=cost)
    place = {claim_id: i for i, claim_id in enumerate(claims)}
    return sorted(by_key.values(), key=lambda verdict: (place[verdict.claim], verdict.source, verdict.calibration))
