"""SSFusion Fig. 17 (Experiment 7): simulated throughput of two large models, and whether they fit on 64 GPUs."""

from __future__ import annotations

from pathlib import Path

from ssfx.figures.grouped_bars import Groups
from ssfx.figures.grouped_bars import finding as finding
from ssfx.results.comparisons import metric
from ssfx.results.rows import Row
from ssfx.results.simulated_cells import Cell, cells

NAME = "ssfusion.fig17"
TITLE = "throughput and memory of large models"
CLAIMS = (NAME,)
NEEDS = {"experiment": "large_models", "calibration": bool}


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write one group of bars a device memory; what does not fit has no bar."""
    return GROUPS.draw(rows, out, _memory(cells(rows)))


def _memory(shown: list[Cell]) -> list[str]:
    """Return caption lines that say what fits, and why a scheme is missing."""
    needed = []
    for cell in shown:
        gib = sorted({metric(row, "peak_memory_bytes") / 2**30 for row in cell.rows.values()})
        needed.append(f"{cell.case.model} {gib[0]:.0f} (dense) to {gib[-1]:.0f} GiB (with a residual)")
    text = [
        f"Memory by footprint: {'; '.join(dict.fromkeys(needed))}: float32 weights, gradients, AdamW state, residual, "
        "activations with fused attention. The paper prints no batch size: one sample, as its 38.2 GB for GPT2-XL "
        "leave room for no more.",
    ]
    if any("oktopk" not in cell.rows for cell in shown):
        text.append("oktopk and spardl send one message, whose 32-bit indices do not reach over BLOOM-3B.")
    return text


def _at(cell: Cell) -> tuple[float, str]:
    gib = {row.manifest["device_memory_bytes"] / 2**30 for row in cell.rows.values()}
    return -max(gib), f"A100 {max(gib):.0f} GB"


GROUPS = Groups(NAME, NAME, "device", _at)
