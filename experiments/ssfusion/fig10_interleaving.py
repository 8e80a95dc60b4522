"""SSFusion Fig. 10: one step with All-Gather alone and with All-Reduce in between, planned and simulated."""

from __future__ import annotations

from pathlib import Path

from ssfx.figures.seven_tensors import EXAMPLE, planned
from ssfx.figures.timelines import draw_timelines
from ssfx.results.rows import Row
from ssfx.simulator import Simulated

NAME = "ssfusion.fig10"
TITLE = "Fig. 10: All-Gather alone, and interleaved All-Reduce and All-Gather"


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write both timelines."""
    return draw_timelines(NAME, TITLE, steps(), out)


def finding(rows: list[Row]) -> str:
    """Return the time of each."""
    return ", ".join(f"{name} {1e3 * step.iteration_s:.2f} ms" for name, step in steps().items())


def steps() -> dict[str, Simulated]:
    """Return a simulated step of each."""
    return {
        "(a) All-Gather": EXAMPLE.step(planned("naive")),
        "(b) Interleaved All-Reduce and All-Gather (SSFusion-I)": EXAMPLE.step(planned("i")),
    }
