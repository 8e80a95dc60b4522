"""SSFusion Fig. 13 (Experiment 3): where the time of an iteration goes on clusters that are not here."""

from __future__ import annotations

from pathlib import Path

from ssfx.figures.breakdown import draw_breakdown
from ssfx.figures.breakdown import finding as finding
from ssfx.results.rows import Row

NAME = "ssfusion.fig13_clusters"
TITLE = "time breakdown on clusters that are not here"
CLAIMS = ("ssfusion.fig13",)
NEEDS = {"experiment": "breakdown"}


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write one panel a model and calibration."""
    return draw_breakdown(NAME, rows, out)
