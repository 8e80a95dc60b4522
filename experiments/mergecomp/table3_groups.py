"""MergeComp Table 3: gain of the searched two groups over an even split, ResNet101 (ratio of times)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.judging import complete
from experiments.common.evaluation.mergecomp_panels import draw_groups, ratios_of
from experiments.common.evaluation.row_steps import judge_predictions
from experiments.common.validation.published_steps import Prediction, Steps
from ssfx.core.rows import Row

NAME = "mergecomp.table3"
TITLE = "Gain over an even split, ResNet101"
NEEDS = {"experiment": "mergecomp_groups", "calibration": bool}
COMMAND = "ssfx run experiment=mergecomp_groups"


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write the paper's table with our ratios next to its own."""
    return draw_groups(NAME, TITLE, rows, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return verdicts on every cell and on the largest gain."""
    return complete(NAME, judge_predictions(rows, [*ratios_of(NAME), EXTRA]), COMMAND)


def _largest(steps: Steps) -> float:
    return max(one.value(steps) for one in ratios_of(NAME))


EXTRA = Prediction("mergecomp.table3.max", "", "largest gain", _largest)
