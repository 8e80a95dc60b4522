"""SSFusion Fig. 14 (Experiment 4): simulated throughput of every scheme with four sparsifiers."""

from __future__ import annotations

from pathlib import Path

from ssfx.figures.grouped_bars import Groups
from ssfx.figures.grouped_bars import finding as finding
from ssfx.results.rows import Row

NAME = "ssfusion.fig14"
TITLE = "throughput by sparsifier"
CLAIMS = (NAME,)
NEEDS = {"experiment": "compressors", "calibration": bool}

ORDER = ("gaussiank", "dgc", "redsync", "sidco")
NOTES = ["oktopk and spardl take exact top-k only: the same bars stand beside every sparsifier."]
GROUPS = Groups(NAME, NAME, "sparsifier", lambda cell: (_place(cell.compressor), cell.compressor or "one"))


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write one group of bars a sparsifier, in the paper's order."""
    return GROUPS.draw(rows, out, NOTES)


def _place(compressor: str) -> int:
    return ORDER.index(compressor) if compressor in ORDER else len(ORDER)
