"""SSFusion Fig. 15 (Experiment 5): its gain in throughput over six rivals at three densities, simulated."""

from __future__ import annotations

from pathlib import Path

from experiments.common.figures.auto import AT_DENSITY, NO_PRINTED_TIMES
from experiments.common.figures.gains import Gains
from experiments.common.figures.gains import finding as finding
from ssfx.core.rows import Row

NAME = "ssfusion.fig15"
TITLE = "Fig. 15: throughput of SSFusion over that of each rival, by density, 64 GPUs"
CLAIMS = (NAME,)
NEEDS = {"experiment": "density", "calibration": bool}
NOTES = (
    "Grey: the range that the paper prints for this density over its six rivals. That of density 0.01 is also printed "
    "for 100 Gbit/s in Experiment 6 (SSF-03).",
    f"{AT_DENSITY} {NO_PRINTED_TIMES}",
)

GAINS = Gains(
    NAME, TITLE, "", "settings", lambda cell: (-cell.density, f"density {cell.density:g}"), "density asked for"
)
judge = GAINS.judge


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write a panel per calibration, a line per density, a dot per rival."""
    return GAINS.draw(rows, out)
