"""Every claim of the ledger with its verdicts, computed once for README, documentation, status and report.

Three things speak to claims: scripts that judge what they compute, simulated rows, and rows of real runs. A claim that
none of them speaks to is "not attempted", with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from experiments.common.claims.calibration_inputs import USED, used_by
from experiments.common.claims.evidence import Evidence, evidence
from experiments.common.claims.ledger import PaperClaim, claims_by_id, ledgers
from experiments.common.claims.simulated import Judged, judged
from experiments.common.claims.verdicts import Outcome, Source, Verdict, headline, span
from ssfx.core.errors import SsfxError
from ssfx.core.rows import Row

OUTCOMES: Mapping[str, Outcome] = {"agree": "agrees", "partial": "partly", "disagree": "disagrees"}
"""Outcomes of a comparison of ranges, in the words of a Verdict."""
SIMULATED_COST = "about a minute on one core"
REAL_COST = "minutes on this machine"


class Judging(Protocol):
    """What this module needs to know of a figure; experiments.common.figures.discovery.Figure is one."""

    @property
    def name(self) -> str:
        """Id of the artifact."""

    @property
    def claims(self) -> tuple[str, ...]:
        """Artifacts or claims of the ledger that it is about."""

    @property
    def needs(self) -> Mapping[str, Any]:
        """Fields of a case that its rows have; empty where it needs no rows."""

    @property
    def command(self) -> str:
        """What makes its rows."""

    @property
    def judge(self) -> Callable[[list[Row]], Sequence[Verdict]] | None:
        """Its own verdicts on claims."""

    def select(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows that it needs."""


def verdicts(figures: Iterable[Judging], rows: Sequence[Row]) -> list[Verdict]:
    """Return at least one verdict for every claim of the ledger, in the ledger's order; several sources, several.

    ValueError if a figure judges a claim that no ledger has. A figure whose rows cannot be used (a metric is missing)
    gives no verdicts, and its claims say why.
    """
    known = claims_by_id()
    found: dict[str, list[Verdict]] = {name: [] for name in known}
    broken: dict[str, str] = {}
    for figure in figures:
        try:
            given = [*_own(figure, rows), *_simulated(figure, rows)]
        except SsfxError as error:
            broken |= dict.fromkeys(figure.claims, str(error))
            continue
        for one in given:
            if one.claim not in found:
                raise ValueError(f"{figure.name} judges {one.claim!r}, which is in no ledger")
            checked = _as_it_counts(one, known[one.claim])
            if checked not in found[one.claim]:
                found[one.claim].append(checked)
    for ledger in ledgers():
        for entry in evidence(ledger, rows):
            real = _real(entry)
            if real and not any(other.source == real.source for other in found[real.claim]):
                found[real.claim].append(real)
    for name, claim in known.items():
        if not found[name]:
            why = broken.get(name) or broken.get(claim.artifact) or why_not_attempted(claim)
            found[name].append(Verdict(name, "not attempted", "", "none", reason=why))
    return [one for several in found.values() for one in several]


def headlines(figures: Iterable[Judging], rows: Sequence[Row]) -> Mapping[str, Verdict]:
    """Return the one verdict that counts for each of all claims; see experiments.common.claims.verdicts.headline."""
    return headline(verdicts(figures, rows))


def why_not_attempted(claim: PaperClaim) -> str:
    """Return in one sentence why nothing of ssfx speaks to a claim."""
    if claim.verified == "disagree" and claim.issue:
        return f"The paper's own numbers contradict this one ({claim.issue}), so nothing was run for it."
    if claim.type == "setup":
        return "It says how the paper set its experiments up, which is taken over as a setting and not measured."
    if claim.type == "background":
        return "It is about other work or general knowledge, which ssfx does not experiment on."
    if claim.type == "formula":
        return "It is a formula; no script of ssfx works it out yet."
    models = ", ".join(_models(claim))
    where = f" of {models}" if models else ""
    return {
        "static": "It follows from shapes or arithmetic; no script of ssfx works it out yet.",
        "gpu": f"It needs measurements{where} on the paper's GPUs, and no GPU was at hand.",
        "cpu-mini": f"It needs training runs{where} to the end on the paper's data, which were not done here.",
        "algorithmic": f"It needs training steps{where} on the paper's data, which were not run here.",
        "simulation": f"Simulation could speak to it; no experiment of ssfx simulates this setting{where} yet.",
    }[claim.reproducible_by]


def _models(claim: PaperClaim) -> list[str]:
    named = claim.conditions.get("models", claim.conditions.get("model"))
    return [named] if isinstance(named, str) else [str(name) for name in named or []]


def _as_it_counts(one: Verdict, claim: PaperClaim) -> Verdict:
    """Return the verdict, "restated" for set-ups; not comparable where the calibration was made from the claim.

    Nor does a run compare with a number that contradicts other numbers of its paper. What is computed from those other
    numbers does: it shows the contradiction.
    """
    if one.source == "computed":
        return replace(one, source="restated") if claim.type == "setup" else one
    if one.outcome in OUTCOMES.values() and used_by(one.calibration, claim):
        return replace(one, outcome="not comparable", reason=USED)
    if one.outcome in OUTCOMES.values() and one.source != "restated" and claim.contradiction:
        return replace(one, outcome="not comparable", reason=claim.contradiction)
    return one


def _own(figure: Judging, rows: Sequence[Row]) -> Sequence[Verdict]:
    if figure.judge is None:
        return []
    chosen = figure.select(rows) if figure.needs else []
    return figure.judge(chosen) if chosen or not figure.needs else []


def _simulated(figure: Judging, rows: Sequence[Row]) -> list[Verdict]:
    if not figure.needs:
        return []
    chosen = figure.select(rows)
    return [
        _from_judged(one, figure.command)
        for artifact in figure.claims
        if artifact.startswith("ssfusion.")
        for one in judged(artifact, chosen)
    ]


def _from_judged(one: Judged, command: str) -> Verdict:
    outcome = OUTCOMES.get(one.verdict, "not comparable")
    why = one.why or one.because
    if not why and outcome != "agrees":
        why = f"simulated with {one.calibration} times: {one.here}; the paper: {one.there}"
    return Verdict(one.claim.id, outcome, one.here, "simulated", one.calibration, why, command, SIMULATED_COST)


def _real(entry: Evidence) -> Verdict | None:
    if entry.low is None or entry.high is None:
        return None
    assert entry.claim.bounds is not None
    outcome = OUTCOMES.get(entry.verdict, "not comparable")
    unit = "%" if entry.claim.unit == "percent" else entry.claim.unit or ""
    here, there = span(entry.low, entry.high, unit), span(*entry.claim.bounds, unit)
    why = entry.why or ("" if outcome == "agrees" else f"ours is {here}, the paper has {there}")
    source: Source = "emulated" if "emulated" in entry.how else "measured"
    return Verdict(entry.claim.id, outcome, here, source, "", why, entry.command, REAL_COST)
