"""SSFusion Fig. 16 (Experiment 6): simulated throughput of every scheme by the bandwidth between nodes."""

from __future__ import annotations

from pathlib import Path

from experiments.common.figures.auto import BY_QUALITY, NO_PRINTED_TIMES
from experiments.common.figures.grouped_bars import Groups
from experiments.common.figures.grouped_bars import finding as finding
from ssfx.core.rows import Row
from ssfx.lab.results.comparisons import Cell

NAME = "ssfusion.fig16"
TITLE = "Fig. 16: throughput by bandwidth between nodes, ResNet-152 on 64 GPUs"
CLAIMS = (NAME,)
NEEDS = {"experiment": "bandwidth", "calibration": bool}

LINE_RATE_GBPS = 200.0
"""Of the cluster without an option, and of the paper's other experiments."""
NOTES = (
    "The paper does not name the model of this experiment; ResNet-152 is that of Experiment 5, whose range at density "
    "0.01 is the one that it prints for 100 Gbit/s here (SSF-03).",
    "The paper prints ranges of gains alone, no throughput.",
    f"{BY_QUALITY} {NO_PRINTED_TIMES}",
)


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write one group of bars a bandwidth, the lowest first."""
    return GROUPS.draw(rows, out)


def _at(cell: Cell) -> tuple[float, str]:
    gbps = float(cell.options.get("inter.gbps", LINE_RATE_GBPS))
    return gbps, f"{gbps:g}"


GROUPS = Groups(NAME, TITLE, "line rate of a node (Gbit/s)", _at)
judge = GROUPS.judge
