"""ACP-SGD Fig. 3: where an iteration goes with S-SGD and three compressors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.acpsgd_panels import NOTE, iteration_s, parts
from experiments.common.evaluation.judging import complete
from experiments.common.evaluation.row_steps import Rule, judge_orders, judge_predictions
from experiments.common.evaluation.step_plots import draw_parts
from experiments.common.figures.auto import AUTO
from experiments.common.validation.published_acpsgd import Setup, ratios, timed
from experiments.common.validation.published_steps import Prediction, Steps
from ssfx.core.rows import Row

NAME = "acpsgd.fig3"
TITLE = "Parts of an iteration: S-SGD and three compressors"
NEEDS = {"experiment": "acpsgd_models", "calibration": bool}
COMMAND = "ssfx run experiment=acpsgd_models"
NOTES = (NOTE,)

METHODS = ("ssgd", "signsgd", "topk", "powersgd")
SHOWN = (*METHODS, AUTO)
MODELS = ("ResNet-50", "BERT-Base")


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write stacked parts, one panel a model."""
    return draw_parts(NAME, {model: parts(rows, SHOWN, model) for model in MODELS}, rows, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return verdicts on the ratios and orderings of the text."""
    bert = Setup("BERT-Base")
    own = [one for one in ratios() if one.claim.startswith("acpsgd.fig3.")]
    own += [
        Prediction(
            "acpsgd.fig3.power", "", "",
            lambda steps: iteration_s(steps, "ssgd", bert) / iteration_s(steps, "powersgd", bert),
        ),
        Prediction(
            "acpsgd.fig3.topk_comp", "", "",
            lambda steps: compressing(steps, "topk") / compressing(steps, "signsgd"),
        ),
    ]  # fmt: skip
    return complete(NAME, [*judge_predictions(rows, own), *judge_orders(rows, ORDERS)], COMMAND)


def compressing(steps: Steps, name: str) -> float:
    """Return the seconds that compressing takes on the device, for BERT-Base."""
    return steps.step(*timed(name, Setup("BERT-Base"))).sparsify_s


def _cheap(steps: Steps) -> tuple[bool, str]:
    times = {name: compressing(steps, name) for name in METHODS[1:]}
    return min(times, key=times.__getitem__) == "signsgd", ", ".join(f"{n} {1e3 * t:.0f} ms" for n, t in times.items())


ORDERS: dict[str, Rule] = {"acpsgd.fig3.sign_cheap": _cheap}
