"""SSFusion Table V (Experiment 8): the share of profiling in the time of training; not measured by ssfx yet."""

from __future__ import annotations

from pathlib import Path

from ssfx.results.rows import Row

NAME = "ssfusion.table5"
TITLE = "Table V: profiling time, share of the time of training"
CLAIMS = (NAME,)
NEEDS = {"experiment": "profiling_overhead"}
COMMAND = "no experiment of ssfx records the time of profiling yet"


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write nothing: there are no such rows."""
    return []


def finding(rows: list[Row]) -> str:
    """Return that nothing is known."""
    return "the time of profiling is not recorded"
