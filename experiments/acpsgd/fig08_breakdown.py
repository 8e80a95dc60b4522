"""ACP-SGD Fig. 8: where an iteration goes with ACP-SGD and three other methods."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Outcome, Verdict
from experiments.common.evaluation.acpsgd_panels import NOTE, iteration_s, parts
from experiments.common.evaluation.judging import complete, not_comparable
from experiments.common.evaluation.row_steps import Rule, judge_orders
from experiments.common.evaluation.step_plots import draw_parts
from experiments.common.figures.auto import AUTO
from experiments.common.validation.published_acpsgd import Setup
from experiments.common.validation.published_steps import Steps
from ssfx.core.rows import Row

NAME = "acpsgd.fig8"
TITLE = "Parts of an iteration: ACP-SGD and three other methods"
CLAIMS = (NAME,)
NEEDS = {"experiment": "acpsgd_models", "calibration": bool}
COMMAND = "ssfx run experiment=acpsgd_models"
NOTES = (NOTE,)

METHODS = ("ssgd", "powersgd", "powersgd-star", "acpsgd")
SHOWN = (*METHODS, AUTO)
MODELS = ("ResNet-50", "BERT-Base")
NO_NUMBER = "the paper does not say which share of linear scaling is almost linear; its own time of a step gives 81 %"


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write stacked parts, one panel a model."""
    return draw_parts(NAME, {model: parts(rows, SHOWN, model) for model in MODELS}, rows, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return the verdict on linear scaling."""
    return complete(NAME, not_comparable(judge_orders(rows, ORDERS), dict.fromkeys(ORDERS, NO_NUMBER)), COMMAND)


def _linear(steps: Steps) -> tuple[Outcome, str]:
    shares = [steps.alone_s(Setup(m).setting) / iteration_s(steps, "acpsgd", Setup(m)) for m in MODELS]
    return "not comparable", f"{100 * min(shares):.0f} to {100 * max(shares):.0f} % of linear"


ORDERS: dict[str, Rule] = {"acpsgd.fig8.linear": _linear}
