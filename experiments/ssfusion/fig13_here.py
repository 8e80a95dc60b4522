"""SSFusion Fig. 13: where the time of an iteration goes, per scheme, with the communication that backward hides."""

from __future__ import annotations

from pathlib import Path

from experiments.common.figures.breakdown import draw_breakdown
from experiments.common.figures.breakdown import finding as finding
from ssfx.core.rows import Row

NAME = "ssfusion.fig13_here"
TITLE = "Time breakdown of an iteration of small models on this machine"
CLAIMS = ("ssfusion.fig13",)
NOTES = (
    "Bar: the run with the (lower) median iteration time. Its parts are medians over steps and need not add up to that "
    "time (tick). Dashed line: ideal, the iteration of one worker alone.",
)
NEEDS = {"experiment": "throughput", "calibration": ""}
COMMAND = "ssfx run experiment=throughput preset=short"


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write one panel a workload."""
    return draw_breakdown(NAME, rows, out)
