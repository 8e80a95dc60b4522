"""SSFusion Fig. 10: one step with All-Gather alone and with All-Reduce in between, planned and simulated."""

from __future__ import annotations

from experiments.common.figures.example import EXAMPLE, planned
from experiments.common.figures.timelines import Timelines
from ssfx.simulator import Simulated

NAME = "ssfusion.fig10"
TITLE = "Fig. 10: All-Gather alone, and interleaved All-Reduce and All-Gather"


def steps() -> dict[str, Simulated]:
    """Return a simulated step of each."""
    return {
        "(a) All-Gather": EXAMPLE.step(planned("naive")),
        "(b) Interleaved All-Reduce and All-Gather (SSFusion-I)": EXAMPLE.step(planned("i")),
    }


TIMELINES = Timelines(NAME, TITLE, steps)
draw, finding = TIMELINES.draw, TIMELINES.finding
