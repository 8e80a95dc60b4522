"""SSFusion Fig. 15 (Experiment 5): simulated throughput of every scheme at three densities."""

from __future__ import annotations

from pathlib import Path

from ssfx.figures.grouped_bars import Groups
from ssfx.figures.grouped_bars import finding as finding
from ssfx.results.rows import Row

NAME = "ssfusion.fig15"
TITLE = "throughput by density"
CLAIMS = (NAME,)
NEEDS = {"experiment": "density", "calibration": bool}

GROUPS = Groups(NAME, NAME, "density asked for", lambda cell: (-cell.density, f"{cell.density:g}"))


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write one group of bars a density, the highest first."""
    return GROUPS.draw(rows, out)
