"""SSFusion Fig. 7: seven tensors in two buffers, all compressed and selectively, planned and simulated."""

from __future__ import annotations

from experiments.common.claims.verdicts import Verdict
from experiments.common.figures.example import EXAMPLE, dense_tensors, per_tensor, planned
from experiments.common.figures.timelines import Timelines
from ssfx.core.rows import Row
from ssfx.simulator import Simulated

NAME = "ssfusion.fig7"
TITLE = "Fig. 7: per-tensor and selective sparsification of seven tensors in two buffers"
COMMAND = "ssfx figures ssfusion.fig7"


def judge(rows: list[Row]) -> list[Verdict]:
    """Return whether there are seven tensors in two buffers, of whose second G3 and G1 stay uncompressed."""
    left = dense_tensors(planned("naive"))
    holds = len(EXAMPLE.tensors) == 7 and len(left) == 2 and left[1] == {"3", "1"}
    here = f"{len(EXAMPLE.tensors)} tensors, of buffer 2 excluded: {', '.join(f'G{name}' for name in sorted(left[1]))}"
    said = "Sizes and times of the example are ours, chosen so that Eq. 2 excludes the tensors that the figure names."
    return [
        Verdict("ssfusion.fig7.tensors", "agrees" if holds else "disagrees", here, "restated", reason=said,
                command=COMMAND, cost="seconds on one core"),
    ]  # fmt: skip


def steps() -> dict[str, Simulated]:
    """Return a simulated step of each."""
    return {
        "(a) Per-tensor sparsification": EXAMPLE.step(per_tensor()),
        "(b) Selective sparsification (SSFusion)": EXAMPLE.step(planned("naive")),
    }


TIMELINES = Timelines(NAME, TITLE, steps)
draw, finding = TIMELINES.draw, TIMELINES.finding
