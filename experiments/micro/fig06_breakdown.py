"""MiCRO Fig. 6: where an iteration goes with four sparsifiers, three networks and two densities."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.judging import absent, complete, not_comparable
from experiments.common.evaluation.micro_steps import DENSITIES, MODELS, iteration_s, panels
from experiments.common.evaluation.row_steps import Rule, judge_orders
from experiments.common.evaluation.step_plots import PARTS, draw_parts
from experiments.common.figures.auto import AT_DENSITY
from experiments.common.validation.published_steps import Steps
from ssfx.core.rows import Row

NAME = "micro.fig6"
TITLE = "Parts of an iteration of four sparsifiers"
CLAIMS = (NAME,)
NEEDS = {"experiment": "micro_clusters", "calibration": bool}
COMMAND = "ssfx run experiment=micro_clusters"
NOTES = (AT_DENSITY,)

SORTS_NOTHING = "the claim rests on sorting; our Top-k finds its threshold by histogram and sorts nothing"
SORTING, THRESHOLDS = ("topk", "cltk"), ("hard_threshold", "micro")


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write stacked parts, a panel for each network and density; the data set does not matter to a simulated step."""
    return draw_parts(NAME, panels(rows), rows, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return verdicts on the orders of iteration times and of selection."""
    found = not_comparable(judge_orders(rows, ORDERS), dict.fromkeys(ORDERS, SORTS_NOTHING))
    if found:
        parts = f"{len(PARTS)} parts here: forward and backward are one, partitioning is part of compression"
        found.append(absent("micro.fig6.parts", parts, "not comparable"))
        found.append(absent("micro.intro.threshold_fast", SORTS_NOTHING, "not comparable"))
        found.append(absent("micro.fig6.zero", "the threshold's update is not timed apart from the selection"))
    return complete(NAME, found, COMMAND)


def _every(steps: Steps) -> list[dict[str, float]]:
    names = (*SORTING, *THRESHOLDS)
    return [
        {name: iteration_s(steps, name, model, density) for name in names} for model in MODELS for density in DENSITIES
    ]


def _slow(steps: Steps) -> tuple[bool, str]:
    wins = [min(t[n] for n in SORTING) > max(t[n] for n in THRESHOLDS) for t in _every(steps)]
    return all(wins), f"longer in {sum(wins)} of {len(wins)} settings"


def _best(steps: Steps) -> tuple[bool, str]:
    wins = [min(times, key=times.__getitem__) == "micro" for times in _every(steps)]
    return all(wins), f"shortest in {sum(wins)} of {len(wins)} settings"


ORDERS: dict[str, Rule] = {
    "micro.fig6.slow": _slow,
    "micro.fig6.best": _best,
}
