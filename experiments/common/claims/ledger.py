"""The claim ledger: what five papers state, in our words, with the outcome of checks from shapes and algebra."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class PaperClaim:
    """One statement of a paper; `value` is a number, a {lo, hi} range, or None for orderings and formulas.

    `verified` is the outcome (agrees, partly or disagrees) of a check against the paper's other numbers, shapes and
    algebra, not against a model of ours; it never means that an experiment was rerun. `issue` names an inconsistency to
    know about before the number is used. `here` says where ssfx has the value of a setting, as "cluster 64gpu nodes"
    (`evaluation.configured.taken`), `not_here` why it has no value. Of a value worked out by code, `source`, `why` and
    `tolerance` are what its verdict says; `not_comparable` says why it compares nothing.
    """

    id: str
    artifact: str
    locator: str
    type: str
    statement: str
    metric: str
    subject: str
    baseline: str | None
    conditions: Mapping[str, Any]
    value: float | Mapping[str, float] | None
    unit: str | None
    check: str
    reproducible_by: str
    verified: str | None = None
    issue: str | None = None
    here: str = ""
    not_here: str = ""
    source: str = ""
    why: str = ""
    tolerance: float | None = None
    not_comparable: str = ""

    @property
    def contradiction(self) -> str:
        """Why no run can be held against it: other numbers of its paper contradict it; "" if they do not."""
        return f"contradicts other numbers of the paper ({self.issue})" if self.verified == "disagrees" else ""

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The stated value as a range, None when there is no number."""
        if self.value is None:
            return None
        if isinstance(self.value, (int, float)):
            return float(self.value), float(self.value)
        return float(self.value["lo"]), float(self.value["hi"])


@dataclass(frozen=True)
class Ledger:
    """The claims and artifacts (figures, tables, set-ups) of one paper, and by issue what it says twice."""

    paper: str
    title: str
    venue: str
    says_twice: Mapping[str, str]
    claims: tuple[PaperClaim, ...]
    artifacts: tuple[Mapping[str, Any], ...]


@cache
def ledgers() -> tuple[Ledger, ...]:
    """Return the ledgers of all papers, sorted by the paper's short name."""
    return tuple(
        Ledger(
            raw["paper"],
            raw["title"],
            raw["venue"],
            raw["says_twice"],
            tuple(PaperClaim(**claim) for claim in raw["claims"]),
            tuple(raw["artifacts"]),
        )
        for raw in (json.loads(path.read_text(encoding="utf-8")) for path in ledger_files())
    )


def ledger_files() -> list[Path]:
    """Return the file of every paper's claims, by the paper's short name, which is that of its folder."""
    return sorted(Path(__file__).parents[2].glob("*/claims.json"))


@cache
def claims_by_id() -> Mapping[str, PaperClaim]:
    """Return every claim of every paper by its id, in the ledgers' order."""
    return {claim.id: claim for ledger in ledgers() for claim in ledger.claims}


def claims_of(artifact: str) -> list[PaperClaim]:
    """Return the claims of a figure, table or passage, in the ledger's order."""
    return [claim for claim in claims_by_id().values() if claim.artifact == artifact]


# ---- what calibrations were made from -------------------------------------------------------------------------------


INPUTS: Mapping[str, tuple[str, ...]] = {
    "fitted": ("ssfusion.fig2", "ssfusion.fig4", "ssfusion.fig5", "ssfusion.fig9", "ssfusion.table3"),
    "published": (
        "ssfusion.table3",
        "acpsgd.iv.ar",
        "mergecomp.budget",
        "mergecomp.fig3",
        "s2reducer.appB1",
    ),
}
"""By calibration, artifacts of the ledger and beginnings of claims' ids.

All claims about an artifact count as used, also those that the fit does not read: they follow from those it reads.
"""
USED = "this number was used to fit"


def used_by(calibration: str, claim: PaperClaim) -> bool:
    """True when simulations of `calibration` rest on the claim, or on another number of the same artifact."""
    given = INPUTS.get(calibration, ())
    return claim.artifact in given or any(f"{claim.id}.".startswith(f"{name}.") for name in given)
