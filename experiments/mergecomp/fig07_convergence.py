"""MergeComp Fig. 7: time to converge, ResNet50 on CIFAR10 with DGC."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ssfx.claims.verdicts import Verdict
from ssfx.evaluation.judging import complete
from ssfx.evaluation.mergecomp_panels import panels_of
from ssfx.evaluation.row_steps import judge_predictions, prediction_bars
from ssfx.evaluation.step_plots import draw_panels
from ssfx.results.rows import Row

NAME = "mergecomp.fig7"
TITLE = "Time to converge, ResNet50 on CIFAR10 with DGC"
CLAIMS = (NAME,)
NEEDS = {"experiment": "mergecomp_clusters", "calibration": bool}
COMMAND = "ssfx run experiment=mergecomp_clusters"


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write how many times as long an iteration takes without MergeComp: curves by iteration are taken to coincide."""
    panels = [prediction_bars(rows, own, title, {"": "#cc79a7"}) for title, own in panels_of(NAME).items() if own]
    return draw_panels(NAME, panels, rows, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return verdicts on the ratios of times to converge, as ratios of iteration times."""
    own = [one for part in panels_of(NAME).values() for one in part]
    return complete(NAME, judge_predictions(rows, own), COMMAND)
