"""Every claim of the ledger with its verdicts, computed once for README, documentation, status and report.

Three things speak to claims: scripts that judge what they compute, simulated rows, and rows of real runs. A claim that
none of them speaks to is "not attempted", with the reason.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from experiments.common.claims.evidence import evidence
from experiments.common.claims.ledger import USED, PaperClaim, claims_by_id, ledgers, used_by
from experiments.common.claims.verdicts import JUDGED, Verdict, headline
from experiments.common.figures.figure import Figure
from ssfx.advice.trust import Trust, trust_besides
from ssfx.core.errors import SsfxError
from ssfx.core.rows import Row

TIMES = ("ms", "s", "x")
"""Units of times and of their ratios, which the error of simulated steps says something of."""
GAINS = {"percent": 100.0, "fraction": 1.0}
"""Units of gains, with what a gain of one is in them."""
OF_GAINS = {"throughput_speedup": 1, "ratio": 1, "time_reduction": -1}
"""Metrics of claims that state a gain, a growth or a reduction in those units, with the sign of what it is over one."""


def verdicts(figures: Iterable[Figure], rows: Sequence[Row]) -> list[Verdict]:
    """Return at least one verdict for every claim of the ledger, in the ledger's order; several sources, several.

    ValueError if a figure judges a claim that no ledger has. A figure whose rows cannot be used (a metric is missing)
    gives no verdicts, and its claims say why.
    """
    claims = claims_by_id()
    by_claim: dict[str, list[Verdict]] = {name: [] for name in claims}
    broken: dict[str, str] = {}
    for figure in figures:
        try:
            selected = figure.select(rows) if figure.needs else []
            given = figure.judge(selected) if selected or not figure.needs else []
        except SsfxError as error:
            broken |= dict.fromkeys(figure.claims, str(error))
            continue
        for verdict in given:
            if verdict.claim not in by_claim:
                raise ValueError(f"{figure.name} judges {verdict.claim!r}, which is in no ledger")
            counting = _as_it_counts(verdict, claims[verdict.claim])
            if counting not in by_claim[verdict.claim]:
                by_claim[verdict.claim].append(counting)
    for ledger in ledgers():
        for real in evidence(ledger, rows):
            if not any(other.source == real.source for other in by_claim[real.claim]):
                by_claim[real.claim].append(real)
    for name, claim in claims.items():
        if not by_claim[name]:
            if claim.contradiction:
                by_claim[name].append(Verdict(name, "not comparable", "", "none", reason=claim.contradiction))
                continue
            why = broken.get(name) or broken.get(claim.artifact) or why_not_attempted(claim)
            by_claim[name].append(Verdict(name, "not attempted", "", "none", reason=why))
    return [verdict for several in by_claim.values() for verdict in several]


def headlines(figures: Iterable[Figure], rows: Sequence[Row]) -> Mapping[str, Verdict]:
    """Return the one verdict that counts for each of all claims; see experiments.common.claims.verdicts.headline."""
    return headline(verdicts(figures, rows))


def why_not_attempted(claim: PaperClaim) -> str:
    """Return in one sentence why nothing of ssfx speaks to a claim."""
    if claim.type == "setup":
        return "It says how the paper set its experiments up, which is taken over as a setting and not measured."
    if claim.type == "background":
        return "It is about other work or general knowledge, which ssfx does not experiment on."
    if claim.type == "formula":
        return "It is a formula; no script of ssfx works it out yet."
    models = claim.conditions.get("models", claim.conditions.get("model")) or []
    named = models if isinstance(models, str) else ", ".join(map(str, models))
    where = f" of {named}" if named else ""
    return {
        "static": "It follows from shapes or arithmetic; no script of ssfx works it out yet.",
        "gpu": f"It needs measurements{where} on the paper's GPUs, which are not here.",
        "cpu-mini": f"It needs training runs{where} to the end on the paper's data, which were not done here.",
        "algorithmic": f"It needs training steps{where} on the paper's data, which were not run here.",
        "simulation": f"Simulation could speak to it; no experiment of ssfx simulates this setting{where} yet.",
    }[claim.reproducible_by]


def _as_it_counts(verdict: Verdict, claim: PaperClaim) -> Verdict:
    """Return the verdict, "restated" for set-ups; not comparable where the calibration was made from the claim.

    Nor does a run compare with a number that contradicts other numbers of its paper. What is computed from those other
    numbers does: it shows the contradiction.
    """
    if claim.source == "restated" and verdict.outcome in JUDGED:
        return replace(verdict, source="restated")
    if verdict.source == "computed":
        return replace(verdict, source="restated") if claim.type == "setup" else verdict
    if verdict.outcome in JUDGED and used_by(verdict.calibration, claim):
        return replace(verdict, outcome="not comparable", reason=USED)
    if verdict.outcome in JUDGED and verdict.source != "restated" and claim.contradiction:
        return replace(verdict, outcome="not comparable", reason=claim.contradiction)
    return within_error(verdict, claim, trust_besides("nominal", claim.id.partition(".")[0]))


def within_error(verdict: Verdict, claim: PaperClaim, trust: Trust | None) -> Verdict:
    """Return the verdict, "within error" where a simulated time or speedup is no further off than simulated steps are.

    That is the mean of other papers' steps that send alike: neither agreement nor disagreement can be told. Gains in
    percent never are, as a small difference of times is a large one of gains; of a reduction, what it leaves is. A
    speedup or gain is not tested where no effect at all would pass, too: it is so small, or ours is a range that has
    both.
    """
    unit = (claim.unit or "").partition("(")[0].strip()
    if verdict.source != "simulated" or trust is None or unit not in (*TIMES, *GAINS):
        return verdict
    if verdict.stated is None or verdict.stated[0] != verdict.stated[1] or not verdict.stated[0] or not verdict.values:
        return verdict
    if verdict.outcome == "partly" and unit == "x" and min(verdict.values) <= 1 <= max(verdict.values):
        why = f"{verdict.reason}: no effect at all would pass, too"
        return replace(verdict, outcome="not comparable", reason=why)
    if verdict.outcome not in JUDGED or (unit in GAINS and claim.metric not in OF_GAINS):
        return verdict
    # A gain of 5 % is a ratio of 1.05, a reduction by 5 % one of 0.95; a share is none.
    scale = GAINS.get(unit, 0.0) * OF_GAINS.get(claim.metric, 1)
    stated, *values = (1 + one / scale if scale else one for one in (verdict.stated[0], *verdict.values))
    off = max(abs(value / stated - 1) for value in values)
    if off > trust.mean:
        return verdict
    why = f"{off:.0%} off, and other papers' steps are {trust.mean:.0%} off on average in simulation"
    why = "; ".join(filter(None, (why, verdict.reason)))
    if unit not in TIMES[:2] and abs(1 / stated - 1) <= trust.mean:
        return replace(verdict, outcome="not comparable", reason=f"{why}: no effect at all would pass, too")
    if scale > 0 or verdict.outcome != "disagrees":
        return verdict
    return replace(verdict, outcome="within error", reason=why)
