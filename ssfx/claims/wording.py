"""What the pages say about claims, from rows: verdicts in words, their counts, and which claims are named first."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence

from ssfx.claims.evidence import Evidence, evidence
from ssfx.claims.ledger import PaperClaim, ledgers
from ssfx.claims.simulated import Judged, judged, verdict_counts
from ssfx.figures.discovery import Figure, discover
from ssfx.results.rows import Row

WORDS = {"agree": "agrees", "partial": "partly", "disagree": "disagrees"}
"""A verdict in a word; the other verdicts are words already."""
COMPARED = tuple(WORDS)
"""Verdicts of claims that our rows can be held against."""
NAMED = 2
"""How many claims a figure names in the table of the README."""

KINDS = {"fig": "Fig.", "table": "Table"}
"""What a figure of a paper is called there, by its name here."""
CALIBRATIONS = {
    "nominal": "line rates and data sheets",
    "published": "the same, but for what a paper prints",
    "fitted": "fitted to the paper's low-level numbers, which are then not compared",
    "recorded": "what was measured on the machine itself",
}
"""What the times of a simulation are, by the name of its calibration."""


def simulated(figure: Figure, rows: Sequence[Row]) -> list[Judged]:
    """Return the claims of a figure beside its simulated rows, in the ledger's order, once for each calibration."""
    chosen = figure.select(rows)
    return [one for artifact in figure.claims for one in judged(artifact, chosen)]


def real(figure: Figure, rows: Sequence[Row]) -> list[Evidence]:
    """Return the claims of a figure beside its real runs; claims that no row speaks to are left out."""
    entries = [entry for ledger in ledgers() for entry in evidence(ledger, figure.select(rows))]
    about = set(figure.claims)
    return [one for one in entries if {one.claim.id, one.claim.artifact} & about and one.verdict != "not run"]


def named(found: Iterable[Judged]) -> list[PaperClaim]:
    """Return the first NAMED claims, in the ledger's order, that can be compared at all; what came out has no say."""
    able = {one.claim.id: one.claim for one in found if one.verdict in COMPARED}
    return list(able.values())[:NAMED]


def word(verdict: str) -> str:
    """Return a verdict in a word: agrees, partly, disagrees, not comparable."""
    return WORDS.get(verdict, verdict)


def counted(found: Iterable[str]) -> str:
    """Return how often each verdict was found, in words: "2 agree, 1 partly, 3 not comparable"."""
    counts = Counter(found)
    order = [*COMPARED, *sorted(set(counts) - set(COMPARED))]
    return ", ".join(f"{counts[verdict]} {_plural(verdict)}" for verdict in order if counts[verdict])


def by_calibration(found: Iterable[Judged]) -> dict[str, list[Judged]]:
    """Return the same apart by calibration, sorted by its name."""
    groups: dict[str, list[Judged]] = {}
    for one in found:
        groups.setdefault(one.calibration, []).append(one)
    return dict(sorted(groups.items()))


def label(figure: Figure) -> str:
    """Return the figure's number in its paper, such as "Fig. 5a" or "Table 1"; "" for a figure of no paper."""
    match = re.search(r"\.(fig|table)0*(\d+[a-z]?)", figure.name)
    return f"{KINDS[match[1]]} {match[2]}" if match else ""


def summary(rows: Sequence[Row]) -> str:
    """Return how many comparable claims simulations agree with, by calibration, and whether a GPU tested any."""
    said = [_sentence(name, counts) for name, counts in verdict_counts(discover().values(), rows).items()]
    outcome = f"In simulations {'; '.join(said)}." if said else "No claim has been simulated yet."
    return textwrap.fill(f"**{outcome} {_on_gpus(rows)}**", 120)


def _sentence(calibration: str, counts: Counter[str]) -> str:
    agree, partial, disagree = (counts[verdict] for verdict in COMPARED)
    times = f"with {calibration} times ({CALIBRATIONS[calibration]})"
    able = agree + partial + disagree
    return f"{times}, {agree} of {able} comparable claims agree, {partial} partly and {disagree} disagree"


def _on_gpus(rows: Sequence[Row]) -> str:
    """Return a sentence on real runs on GPUs; a simulated row names the GPU that it stands for, so it is none."""
    used = [row for row in rows if row.origin.kind != "simulated" and row.case.device != "cpu"]
    if not used:
        return "No claim was tested on GPUs: no row here comes from one."
    return f"{len(used)} rows come from GPUs ({', '.join(sorted({row.origin.hardware for row in used}))})."


def _plural(verdict: str) -> str:
    return {"partial": "partly"}.get(verdict, verdict)
