"""MergeComp section 3.2: the budget of an iteration on two GPUs over PCIe, ResNet50 on CIFAR10."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.judging import absent, complete
from experiments.common.evaluation.pages import draw_claims
from experiments.common.evaluation.row_steps import judge_predictions
from experiments.common.validation.published_mergecomp import Setup, timed
from experiments.common.validation.published_steps import PaperStep, Prediction, Steps, number
from ssfx.core.rows import Row

NAME = "mergecomp.text.2gpu"
TITLE = "Budget of an iteration on two GPUs"
NEEDS = {"experiment": "mergecomp_clusters", "calibration": bool}
COMMAND = "ssfx run experiment=mergecomp_clusters"

AT = Setup("ResNet50", "CIFAR10", 2, "PCIe")


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write the budget beside nominal times; published times were fitted to it, so they are left out."""
    origin = "Simulated steps on two v100 devices over PCIe, nominal times; no GPU was used."
    return draw_claims(NAME, TITLE, judge(rows), out, origin=origin, used=nominal(rows))


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return verdicts on the parts of the budget, from nominal times only."""
    budget = "mergecomp.budget"
    parts = {
        f"{budget}.iter": lambda steps: steps.alone_s(AT.setting),
        f"{budget}.comm": lambda steps: _step(steps, "fp32", "").exposed_comm_s,
        f"{budget}.comm_c": lambda steps: _step(steps, "layerwise", "dgc").exposed_comm_s,
        f"{budget}.ef": lambda steps: _step(steps, "layerwise", "ef_signsgd").sparsify_s,
        f"{budget}.dgc": lambda steps: _step(steps, "layerwise", "dgc").sparsify_s,
    }
    own = [Prediction(claim, "", "", value, _seconds) for claim, value in parts.items()]
    found = judge_predictions(nominal(rows), own)
    if not found:
        return complete(NAME, [absent(claim, f"no rows yet: {COMMAND}") for claim in parts], COMMAND)
    return complete(NAME, found, COMMAND)


def nominal(rows: list[Row]) -> list[Row]:
    """Return the rows of nominal times."""
    return [row for row in rows if row.case.calibration.startswith("nominal")]


def _step(steps: Steps, way: str, compressor: str) -> PaperStep:
    return steps.step(*timed(way, compressor, AT))


def _seconds(claim_id: str) -> float:
    return number(claim_id) / 1e3
