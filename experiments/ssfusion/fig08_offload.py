"""SSFusion Fig. 8: compressing on the host, every tensor and selected ones, planned and simulated."""

from __future__ import annotations

from experiments.common.figures.example import EXAMPLE, per_tensor, planned
from experiments.common.figures.timelines import Timelines
from ssfx.simulator import Simulated

NAME = "ssfusion.fig8"
TITLE = "Fig. 8: two ways to move sparsification to the host"


def steps() -> dict[str, Simulated]:
    """Return a simulated step of each."""
    return {
        "(a) Sparsification offloading of each tensor": EXAMPLE.step(per_tensor(host=True)),
        "(b) Selective offloading (SSFusion-O)": EXAMPLE.step(planned("o")),
    }


TIMELINES = Timelines(NAME, TITLE, steps)
draw, finding = TIMELINES.draw, TIMELINES.finding
