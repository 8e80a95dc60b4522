"""SSFusion Fig. 17 (Experiment 7): simulated throughput of two large models, and whether they fit on 64 GPUs."""

from __future__ import annotations

from pathlib import Path

from experiments.common.figures.auto import BY_QUALITY, NO_PRINTED_TIMES
from experiments.common.figures.grouped_bars import Groups
from experiments.common.figures.grouped_bars import finding as finding
from ssfx.core.rows import Row
from ssfx.lab.results.comparisons import Cell

NAME = "ssfusion.fig17"
TITLE = "Fig. 17: throughput of two large models on 64 GPUs of 40 and 80 GB"
CLAIMS = (NAME,)
NEEDS = {"experiment": "large_models", "calibration": bool}
NOTES = (
    "Memory by footprint: float32 weights, gradients, AdamW state, residual, activations with fused attention. The "
    "paper prints no batch size: one sample, as its 38.2 GB for GPT2-XL leave room for no more.",
    "OkTopk and SparDL send one message, whose 32-bit indices do not reach over BLOOM-3B.",
    f"{BY_QUALITY} {NO_PRINTED_TIMES}",
)


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write one group of bars a device memory; what does not fit has no bar."""
    return GROUPS.draw(rows, out)


def _at(cell: Cell) -> tuple[float, str]:
    gib = {row.manifest["device_memory_bytes"] / 2**30 for row in cell.rows.values()}
    return -max(gib), f"A100 {max(gib):.0f} GB"


GROUPS = Groups(NAME, TITLE, "device", _at)
judge = GROUPS.judge
