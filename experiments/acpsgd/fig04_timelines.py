"""ACP-SGD Fig. 4: Power-SGD without and with overlap, and ACP-SGD with it."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.judging import complete
from experiments.common.evaluation.low_rank_example import EACH, TOGETHER, step
from experiments.common.figures.timelines import Timelines
from ssfx.core.rows import Row
from ssfx.simulator import Simulated

NAME = "acpsgd.fig4"
TITLE = "Fig. 4: Power-SGD after backward, Power-SGD and ACP-SGD during it"
COMMAND = f"ssfx figures {NAME}"


def steps() -> dict[str, Simulated]:
    """Return one simulated step for every panel of the figure."""
    return {
        "(a) Power-SGD": step(TOGETHER, "powersgd(rank=4)", overlap=False),
        "(b) Power-SGD with WFBP": step(EACH, "powersgd(rank=4)"),
        "(c) ACP-SGD with WFBP": step(EACH, "acpsgd(rank=4)"),
    }


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return that the slowdown by sharing one GPU was not measured."""
    return complete(NAME, [], COMMAND, reason="asks for compression beside backward on one GPU; none was timed so")


TIMELINES = Timelines(NAME, TITLE, steps)
draw, finding = TIMELINES.draw, TIMELINES.finding
