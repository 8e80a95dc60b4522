"""What simulations say about claims of the ledger: each claim of a figure beside the simulated value, by calibration.

A value is held against claims that the ledger calls reproducible by simulation, that do not contradict the paper's
other numbers, whose setting the paper names, and that the calibration was not made from; else it is "not comparable".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from experiments.common.claims.calibration_inputs import USED, used_by
from experiments.common.claims.evidence import MODELS, compare
from experiments.common.claims.explained import explained, too_close
from experiments.common.claims.ledger import PaperClaim, claims_of
from experiments.common.claims.values import METHODS, values
from ssfx.core.rows import Row
from ssfx.lab.results.simulated_cells import Cell, as_the_paper_ran, cells

CLOUD = ("16gpu", "32gpu", "64gpu")
TESTBEDS = {"ssfusion.fig5": ("ssfusion_local",), "ssfusion.fig17": ("64gpu", "64gpu_40gb")}
"""Clusters that stand for the paper's, by figure; CLOUD for the others."""
GBPS = 200.0
"""Line rate between their nodes where no option says otherwise and the paper names a rate."""
NAMES = {**MODELS, "GPT2-XL": "gpt2_xl", "BLOOM-3B": "bloom_3b", "modelA": "bert_large", "modelB": "gpt2_large"}
"""Models of the ledger; the last two are not named in the paper and have about the ratio of sizes that its times do."""
NO_RATIO = "no ratio: the other scheme has next to nothing to reduce here"
FITTED = 0.10
"""Relative difference within which the ledger calls the growth of Fig. 9 reproduced."""


@dataclass(frozen=True)
class Judged:
    """One claim beside the values that simulations of one calibration give, one for each setting and baseline.

    `stated` is the paper's range, (1, 1) for an ordering, whose value is 1 where it holds and 0 where not. `why` says
    why the values are not held against the claim, "" if they are. `tolerance` widens the paper's range, relatively.
    `as_printed`: the methods run as the paper ran them, not at their best.
    """

    claim: PaperClaim
    calibration: str
    stated: tuple[float, float]
    values: tuple[float, ...]
    why: str
    tolerance: float = 0.0
    as_printed: bool = False
    because: str = ""
    """Why the values are what they are, and what of an ordering is too close to call; "" where no sentence is known."""

    @property
    def verdict(self) -> str:
        """One of agree, partial, disagree, not comparable; an ordering agrees where it holds in every setting."""
        if self.why:
            return "not comparable"
        low, high = self.stated
        if self.claim.metric == "ordering":
            return "agree" if all(self.values) else "disagree"
        return compare(((1 - self.tolerance) * low, (1 + self.tolerance) * high), min(self.values), max(self.values))

    @property
    def here(self) -> str:
        """Our value in words."""
        if self.claim.metric == "ordering":
            return f"in {sum(self.values):.0f} of {len(self.values)}"
        return _range(self.claim, min(self.values), max(self.values))

    @property
    def there(self) -> str:
        """The paper's value in words."""
        return "holds" if self.claim.metric == "ordering" else _range(self.claim, *self.stated)

    def columns(self) -> dict[str, str | float | int]:
        """Return the columns that a claim has in a figure's CSV."""
        return {
            "origin": f"simulated ({self.calibration})",
            "claim": self.claim.id,
            "claim_low": self.stated[0],
            "claim_high": self.stated[1],
            "value_low": min(self.values),
            "value_high": max(self.values),
            "claim_unit": self.claim.unit or "",
            "values": len(self.values),
            "verdict": self.verdict,
            "why": self.why,
            **({"methods": "as the paper ran them"} if self.as_printed else {}),
        }


def judged(artifact: str, rows: Sequence[Row]) -> list[Judged]:
    """Return the claims about a figure of the paper to which its simulated rows speak, by claim and calibration.

    They are held against the methods as the paper ran them, where these were simulated, and not at their best.
    """
    best = cells(rows)
    own = [as_the_paper_ran(cell) for cell in best]
    changed = any(one is not other for one, other in zip(best, own, strict=True))
    found = []
    for claim in claims_of(artifact):
        if claim.type == "setup":
            continue
        for calibration in sorted({cell.calibration for cell in own}):
            there = [cell for cell in own if cell.calibration == calibration and meets(claim, cell)]
            if given := tuple(values(claim, there)):
                tolerance = FITTED if _is_growth(claim) else 0.0
                why = USED if used_by(calibration, claim) else _why_not(claim)
                why = why or (NO_RATIO if not isfinite(min(given)) else "")
                because = too_close(claim, there) or explained(claim, there)
                found.append(Judged(claim, calibration, _stated(claim), given, why, tolerance, changed, because))
    return found


def meets(claim: PaperClaim, cell: Cell) -> bool:
    """True when the cell has what the claim's conditions name."""
    stated = claim.conditions
    models = {_model(claim, name) for name in stated.get("models", [stated.get("model")]) if name}
    gpus = stated.get("gpus", cell.case.world_size)
    subject = cell.rows.get(METHODS.get(claim.subject, "ssfusion_oi"))
    sparsifier = subject.case.compressor if subject else None
    rate = cell.options.get("inter.gbps")
    if "network" in stated:
        right_rate = float(rate or GBPS) == float(stated["network"].split()[0])
    else:
        right_rate = rate is None or claim.artifact == "ssfusion.fig16"
    return (
        cell.cluster in TESTBEDS.get(claim.artifact, CLOUD)
        and set(cell.options) <= {"nodes", "inter.gbps"}
        and (claim.metric == "ratio" or not cell.cluster.endswith("_40gb"))
        and (not models or cell.case.model in models)
        and cell.case.world_size in (gpus if isinstance(gpus, list) else [gpus])
        and cell.density == stated.get("density", cell.density)
        and stated.get("compressor", sparsifier) == sparsifier
        and right_rate
    )


def _model(claim: PaperClaim, name: str) -> str:
    """Return the model here; only Fig. 5 has ResNet-152 on CIFAR-100."""
    small = claim.artifact == "ssfusion.fig5" and name == "ResNet-152"
    return "resnet152_cifar100" if small else NAMES.get(name, name)


def _is_growth(claim: PaperClaim) -> bool:
    return claim.artifact == "ssfusion.fig9" and claim.metric == "ratio"


def _stated(claim: PaperClaim) -> tuple[float, float]:
    if _is_growth(claim):
        growth = [_quoted(claim, model, 64) / _quoted(claim, model, 8) for model in ("modelA", "modelB")]
        return min(growth), max(growth)
    return claim.bounds or (1.0, 1.0)


def _quoted(growth: PaperClaim, model: str, gpus: int) -> float:
    """Return the seconds that the paper prints for one model and collective of Fig. 9."""
    wanted = {"model": model, "gpus": gpus}
    claims = claims_of(growth.artifact)
    return next(
        one.bounds[0] for one in claims if one.bounds and (one.subject, one.conditions) == (growth.subject, wanted)
    )


def _why_not(claim: PaperClaim) -> str:
    if claim.contradiction:
        return claim.contradiction
    if claim.reproducible_by not in ("simulation", "static"):
        return "asks for a run on the paper's GPUs"
    if claim.artifact == "ssfusion.fig9" and claim.metric == "time_s":
        return f"the paper names neither models nor cluster ({claim.issue})"
    return ""


def _range(claim: PaperClaim, low: float, high: float) -> str:
    """Return a range of values in the claim's unit, gains with their sign; "no ratio" where one has no end."""
    if not isfinite(low):
        return "no ratio"
    if claim.unit == "fraction":
        sign = "" if claim.metric == "ratio" else "+"
        ends = [f"{100 * value:{sign}.0f}" for value in (low, high)]
    else:
        ends = [f"{value:.3g}" for value in (low, high)]
    unit = {"fraction": " %", "qualitative": ""}.get(claim.unit or "", f" {claim.unit or ''}".rstrip())
    return f"{ends[0]}{unit}" if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}{unit}"
