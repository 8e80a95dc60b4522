"""MiCRO Fig. 2: error over training of Top-k and hard threshold."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, pstdev

from experiments.common.claims.verdicts import Outcome, Verdict
from experiments.common.evaluation.gaps import COMMAND as LONG_COMMAND
from experiments.common.evaluation.gaps import COST, LONG, no_row
from experiments.common.evaluation.judging import absent, complete, says
from experiments.common.evaluation.micro_runs import COLOURS, GROUP, ONE, network, runs
from experiments.common.evaluation.quality_curves import curve, draw_curves
from ssfx.core.rows import Row

NAME = "micro.fig2"
TITLE = "Error over steps of Top-k and hard threshold"
NEEDS = {"experiment": LONG, "calibration": ""}
COMMAND = LONG_COMMAND

METHODS = ("Top-k", "hard threshold")
STEADY = 0.1
"""Standard deviation of an error over its mean, in the second half of training, up to which it counts as steady."""


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write the mean norm of what workers have not sent, over steps."""
    own = runs(rows)
    colours = {name: COLOURS[name] for name in METHODS}
    return draw_curves(NAME, network(own), own, colours, "error_norm", "mean error norm", out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return in how many steps the error of hard threshold is lower, and whether it is steady."""
    found = [absent("micro.fig2.gpus", f"ours ran on {GROUP} CPU workers")]
    own = runs(rows)
    pairs = [
        (a, b)
        for one, other in zip(own.get("hard threshold", ()), own.get("Top-k", ()), strict=False)
        for a, b in zip(curve(one).get("error_norm", []), curve(other).get("error_norm", []), strict=False)
        if a is not None and b is not None
    ]
    if pairs:
        lower = sum(a < b for a, b in pairs) / len(pairs)
        varies = max(_varies(row) for row in own["hard threshold"])
        text = f"lower in {100 * lower:.0f} % of the measured steps; varies by {100 * varies:.0f} % in the second half"
        below, steady = lower > 0.5, varies <= STEADY
        outcome: Outcome = "agrees" if below and steady else "partly" if below or steady else "disagrees"
        found.append(says("micro.fig2.order", outcome, text, ONE, source="measured"))
    else:
        found.append(no_row("micro.fig2.order", [name for name in METHODS if name not in own]))
    return complete(NAME, found, COMMAND, cost=COST)


def _varies(row: Row) -> float:
    errors = [value for value in curve(row).get("error_norm", []) if value is not None]
    late = errors[len(errors) // 2 :]
    return pstdev(late) / fmean(late)
