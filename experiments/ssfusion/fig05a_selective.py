"""SSFusion Fig. 5a: simulated iteration time when tensors are compressed each, all together, or only the large ones."""

from __future__ import annotations

from pathlib import Path

from ssfx.figures.grouped_bars import Groups
from ssfx.figures.grouped_bars import finding as finding
from ssfx.results.comparisons import metric
from ssfx.results.rows import Row

NAME = "ssfusion.fig05a"
TITLE = "iteration time with selective sparsification"
CLAIMS = ("ssfusion.fig5",)
NEEDS = {"experiment": "selective", "calibration": bool}

GROUPS = Groups(
    NAME,
    "ssfusion.fig5",
    "model",
    lambda cell: (metric(cell.single, "iteration_s") if cell.single else 0.0, cell.case.model),
    panel=lambda cell: f"{cell.cluster}, P = {cell.case.world_size}",
    metric="iteration_s",
    label="time per iteration (s)",
)


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write one group of bars a model."""
    notes = [
        "Per-tensor: per_tensor; multi-tensor: fused_all; selective: ssfusion_naive, which leaves small tensors dense."
    ]
    return GROUPS.draw(rows, out, notes)
