"""SSFusion Fig. 14 (Experiment 4): its gain in throughput over six rivals by sparsifier, simulated on 64 GPUs."""

from __future__ import annotations

from pathlib import Path

from experiments.common.figures.auto import SAME_COMPRESSOR
from experiments.common.figures.gains import Gains
from experiments.common.figures.gains import finding as finding
from ssfx.core.rows import Row

NAME = "ssfusion.fig14"
TITLE = "Fig. 14: throughput of SSFusion over that of each rival, by sparsifier, 64 GPUs"
CLAIMS = (NAME,)
NEEDS = {"experiment": "compressors", "calibration": bool}

ORDER = {"gaussiank": "Gaussiank", "dgc": "DGC", "redsync": "RedSync", "sidco": "SIDCo"}
"""Sparsifiers in the paper's order."""
NOTES = (
    "Grey: the range that the paper prints for this model and sparsifier over its six rivals. It contradicts the range "
    "of Experiment 1 for the same setting (SSF-02).",
    "OkTopk and SparDL take exact top-k only: the same rows stand beside every sparsifier.",
    SAME_COMPRESSOR,
)


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write a panel per model and calibration, a line per sparsifier, a dot per rival."""
    return GAINS.draw(rows, out)


def _place(compressor: str) -> tuple[float, str]:
    return (list(ORDER).index(compressor), ORDER[compressor]) if compressor in ORDER else (len(ORDER), compressor)


GAINS = Gains(NAME, TITLE, "resnet152 bert_large", "settings", lambda cell: _place(cell.compressor), "sparsifier")
judge = GAINS.judge
