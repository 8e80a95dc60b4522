"""MergeComp Fig. 1: training with and without wait-free backpropagation."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.judging import complete
from experiments.common.evaluation.low_rank_example import EACH, step
from experiments.common.figures.timelines import Timelines
from ssfx.core.rows import Row
from ssfx.simulator import Simulated

NAME = "mergecomp.fig1"
TITLE = "Fig. 1: distributed training without and with WFBP"
COMMAND = f"ssfx figures {NAME}"


def steps() -> dict[str, Simulated]:
    """Return one simulated step for every panel of the figure."""
    return {"without WFBP": step(EACH, overlap=False), "with WFBP": step(EACH)}


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return nothing: the ledger has no claim of this figure."""
    return complete(NAME, [], COMMAND)


TIMELINES = Timelines(NAME, TITLE, steps)
draw, finding = TIMELINES.draw, TIMELINES.finding
