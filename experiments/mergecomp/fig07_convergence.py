"""MergeComp Fig. 7: time to converge, ResNet50 on CIFAR10 with DGC."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.judging import complete
from experiments.common.evaluation.mergecomp_panels import convergence_panels, panels_of
from experiments.common.evaluation.row_steps import judge_predictions
from experiments.common.evaluation.step_plots import draw_panels
from experiments.common.figures.auto import SAME_COMPRESSOR
from ssfx.core.rows import Row

NAME = "mergecomp.fig7"
TITLE = "Time to converge, ResNet50 on CIFAR10 with DGC"
CLAIMS = (NAME,)
NEEDS = {"experiment": "mergecomp_clusters", "calibration": bool}
COMMAND = "ssfx run experiment=mergecomp_clusters"
NOTES = (SAME_COMPRESSOR,)


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write how many times as long an iteration takes without MergeComp: curves by iteration are taken to coincide."""
    return draw_panels(NAME, convergence_panels(NAME, rows, "dgc"), rows, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return verdicts on the ratios of times to converge, as ratios of iteration times."""
    own = [one for part in panels_of(NAME).values() for one in part]
    return complete(NAME, judge_predictions(rows, own), COMMAND)
