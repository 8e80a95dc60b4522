"""MergeComp Fig. 5: scaling factors of merged compression, ResNet101 on ImageNet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ssfx.claims.verdicts import Verdict
from ssfx.evaluation.judging import complete
from ssfx.evaluation.mergecomp_panels import GPUS, factor, factor_panels
from ssfx.evaluation.row_steps import Rule, judge_orders, judge_predictions, prediction_bars
from ssfx.evaluation.step_plots import draw_panels
from ssfx.results.rows import Row
from ssfx.validation.published_mergecomp import Setup, ratios, scaling_factors
from ssfx.validation.published_steps import Prediction, Steps, number

NAME = "mergecomp.fig5"
TITLE = "Scaling factors of MergeComp, ResNet101 on ImageNet"
NEEDS = {"experiment": "mergecomp_clusters", "calibration": bool}
COMMAND = "ssfx run experiment=mergecomp_clusters"

WORKLOAD = ("ResNet101", "ImageNet")


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write scaling factors over GPUs, and the gains and factors that the text prints."""
    gains = [one for one in ratios() if one.claim.startswith(f"{NAME}.")]
    factors = [one for one in scaling_factors() if one.claim.startswith(f"{NAME}.")]
    bars = [
        prediction_bars(rows, gains, "gain of MergeComp, 8 GPUs, PCIe", {"dgc": "#d55e00", "one bit": "#009e73"}),
        prediction_bars(rows, factors, "scaling factor on NVLink", {"MergeComp": "#56b4e9", "fp32": "#5f5f5f"}),
    ]
    return draw_panels(NAME, [*factor_panels(rows, "Y=2", *WORKLOAD), *bars], rows, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return verdicts on the gains, scaling factors and orderings of the text."""
    own = [one for one in (*ratios(), *scaling_factors()) if one.claim.startswith(f"{NAME}.")]
    return complete(NAME, [*judge_predictions(rows, [*own, *EXTRA]), *judge_orders(rows, ORDERS)], COMMAND)


def _headline(steps: Steps) -> float:
    return max(factor(steps, "Y=2", "fp16", Setup(*WORKLOAD, gpus, "NVLink")) for gpus in GPUS)


ORDERS: dict[str, Rule] = {}
EXTRA = [Prediction("mergecomp.headline.sf", "", "best scaling factor", _headline, number)]
