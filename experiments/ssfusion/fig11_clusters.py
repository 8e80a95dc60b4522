"""SSFusion Fig. 11 (Experiment 1): simulated throughput on 16, 32 and 64 GPUs, beside dense DDP and linear scaling."""

from __future__ import annotations

from pathlib import Path

from ssfx.figures.grouped_bars import Groups
from ssfx.figures.grouped_bars import finding as finding
from ssfx.results.rows import Row

NAME = "ssfusion.fig11_clusters"
TITLE = "throughput on clusters that are not here"
CLAIMS = ("ssfusion.fig11",)
NEEDS = {"experiment": "throughput", "calibration": bool}
COMMAND = "ssfx run experiment=throughput cluster=16gpu,32gpu,64gpu cluster.calibration=nominal,published"

GROUPS = Groups(NAME, "ssfusion.fig11", "cluster", lambda cell: (cell.case.world_size, cell.cluster))


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write one group of bars a cluster."""
    return GROUPS.draw(rows, out)
