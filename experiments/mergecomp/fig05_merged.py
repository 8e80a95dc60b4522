"""MergeComp Fig. 5: scaling factors of merged compression, ResNet101 on ImageNet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.judging import complete
from experiments.common.evaluation.mergecomp_panels import GPUS, draw_merged, factor, factors_of, ratios_of
from experiments.common.evaluation.row_steps import judge_predictions
from experiments.common.validation.published_mergecomp import Setup
from experiments.common.validation.published_steps import Prediction, Steps, number
from ssfx.core.rows import Row

NAME = "mergecomp.fig5"
TITLE = "Scaling factors of MergeComp, ResNet101 on ImageNet"
NEEDS = {"experiment": "mergecomp_clusters", "calibration": bool}
COMMAND = "ssfx run experiment=mergecomp_clusters"

WORKLOAD = ("ResNet101", "ImageNet")


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write scaling factors over GPUs, and the gains and factors that the text prints."""
    return draw_merged(NAME, WORKLOAD, rows, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return verdicts on the gains and scaling factors of the text."""
    own = [*ratios_of(NAME), *factors_of(NAME), EXTRA]
    return complete(NAME, judge_predictions(rows, own), COMMAND)


def _headline(steps: Steps) -> float:
    return max(factor(steps, "Y=2", "fp16", Setup(*WORKLOAD, gpus, "NVLink")) for gpus in GPUS)


EXTRA = Prediction("mergecomp.headline.sf", "", "best scaling factor", _headline, number)
