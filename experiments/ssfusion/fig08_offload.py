"""SSFusion Fig. 8: compressing on the host, every tensor and selected ones, planned and simulated."""

from __future__ import annotations

from pathlib import Path

from ssfx.figures.seven_tensors import EXAMPLE, per_tensor, planned
from ssfx.figures.timelines import draw_timelines
from ssfx.results.rows import Row
from ssfx.simulator import Simulated

NAME = "ssfusion.fig8"
TITLE = "Fig. 8: two ways to move sparsification to the host"


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write both timelines."""
    return draw_timelines(NAME, TITLE, steps(), out)


def finding(rows: list[Row]) -> str:
    """Return the time of each."""
    return ", ".join(f"{name} {1e3 * step.iteration_s:.2f} ms" for name, step in steps().items())


def steps() -> dict[str, Simulated]:
    """Return a simulated step of each."""
    return {
        "(a) Sparsification offloading of each tensor": EXAMPLE.step(per_tensor(host=True)),
        "(b) Selective offloading (SSFusion-O)": EXAMPLE.step(planned("o")),
    }
