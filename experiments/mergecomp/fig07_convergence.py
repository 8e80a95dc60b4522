"""MergeComp Fig. 7: time to converge, ResNet50 on CIFAR10 with DGC."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.gaps import LONG
from experiments.common.evaluation.judging import complete
from experiments.common.evaluation.mergecomp_panels import convergence_panels, judge_convergence
from experiments.common.evaluation.step_plots import draw_panels
from experiments.common.figures.auto import SAME_COMPRESSOR
from ssfx.core.rows import Row

NAME = "mergecomp.fig7"
TITLE = "Time to converge, ResNet50 on CIFAR10 with DGC"
CLAIMS = (NAME,)
NEEDS = {"experiment": ("mergecomp_clusters", LONG).__contains__}
COMMAND = "ssfx run experiment=mergecomp_clusters"
NOTES = (SAME_COMPRESSOR,)


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write how many times as long an iteration takes without MergeComp: curves by iteration are taken to coincide."""
    rows = [row for row in rows if row.case.calibration]
    return draw_panels(NAME, convergence_panels(NAME, rows, "dgc"), rows, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return verdicts on the ratios of times to converge, as ratios of iteration times."""
    return complete(NAME, judge_convergence(NAME, rows, "dgc"), COMMAND)
