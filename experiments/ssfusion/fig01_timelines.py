"""SSFusion Fig. 1: three ways to exchange four gradients, as simulated steps of a small example."""

from __future__ import annotations

from experiments.common.claims.verdicts import Verdict, compared
from experiments.common.figures.example import Example, reduced
from experiments.common.figures.timelines import Timelines
from ssfx.core.rows import Row
from ssfx.simulator import Simulated

NAME = "ssfusion.fig1"
TITLE = "Fig. 1: three ways to exchange the gradients of four tensors"
COMMAND = "ssfx figures ssfusion.fig1"

EXAMPLE = Example(
    {"4": 400_000, "3": 500_000, "2": 400_000, "1": 300_000}, (0.6, 0.6, 0.6, 0.6), ms_per_megabyte=0.8,
    latency_ms=0.06, encode_ms=(0.35, 0.1e-6),
)  # fmt: skip
PAIRS = (("4", "3"), ("2", "1"))


def judge(rows: list[Row]) -> list[Verdict]:
    """Return whether the order of the three times is the paper's, and the number of tensors."""
    wfbp, fused, joint = (step.iteration_s for step in steps().values())
    holds = joint < fused < wfbp
    said = f"In the example: {finding(rows)}."
    return [
        compared("ssfusion.fig1.tensors", 4, len(EXAMPLE.tensors), decimals=0, command=COMMAND),
        Verdict("ssfusion.fig1.order", "agrees" if holds else "disagrees", "holds" if holds else "does not hold",
                "restated", reason=said, command=COMMAND, cost="seconds on one core"),
    ]  # fmt: skip


def steps() -> dict[str, Simulated]:
    """Return a simulated step of each way."""
    each = [EXAMPLE.gathered(*((name,) for name in pair)) for pair in PAIRS]
    joint = [EXAMPLE.gathered(pair) for pair in PAIRS]
    return {
        "(a) WFBP": EXAMPLE.step(EXAMPLE.plan(*(reduced(name) for name in EXAMPLE.tensors))),
        "(b) Per-tensor sparsification with tensor fusion": EXAMPLE.step(EXAMPLE.plan(*each)),
        "(c) Multi-tensor sparsification with tensor fusion": EXAMPLE.step(EXAMPLE.plan(*joint)),
    }


TIMELINES = Timelines(NAME, TITLE, steps)
draw, finding = TIMELINES.draw, TIMELINES.finding
