"""MergeComp Fig. 1: training with and without wait-free backpropagation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ssfx.claims.verdicts import Verdict
from ssfx.evaluation.judging import complete
from ssfx.evaluation.low_rank_example import EACH, step
from ssfx.figures.timelines import draw_timelines
from ssfx.results.rows import Row
from ssfx.simulator import Simulated

NAME = "mergecomp.fig1"
TITLE = "Fig. 1: distributed training without and with WFBP"
COMMAND = f"ssfx figures {NAME}"


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write one timeline a panel."""
    return draw_timelines(NAME, TITLE, steps(), out)


def steps() -> dict[str, Simulated]:
    """Return one simulated step for every panel of the figure."""
    return {
        "without WFBP": step(EACH, overlap=False),
        "with WFBP": step(EACH),
    }


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return nothing: the ledger has no claim of this figure."""
    return complete(NAME, [], COMMAND)


def finding(rows: list[Row]) -> str:
    """Return the time of each step."""
    return ", ".join(f"{name} {1e3 * one.iteration_s:.2f} ms" for name, one in steps().items())
