"""ACP-SGD Fig. 2: iteration times of S-SGD and three compressors on four models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.acpsgd_panels import NOTE, bar, iteration_s
from experiments.common.evaluation.judging import absent, complete, number, stated
from experiments.common.evaluation.row_steps import Rule, by_calibration, judge_orders, judge_predictions
from experiments.common.evaluation.step_plots import Bars, draw_panels
from experiments.common.figures.auto import AUTO
from experiments.common.validation.published_acpsgd import MODELS, Setup, ratios
from experiments.common.validation.published_steps import Prediction, Steps
from ssfx.core.rows import Row

NAME = "acpsgd.fig2"
TITLE = "Iteration times of S-SGD and three compressors"
CLAIMS = (NAME,)
NEEDS = {"experiment": "acpsgd_models", "calibration": bool}
COMMAND = "ssfx run experiment=acpsgd_models"
NOTES = (NOTE,)

METHODS = ("ssgd", "signsgd", "topk", "powersgd")
SHOWN = (*METHODS, AUTO)
TIMES = "acpsgd.table3"
"""Where the paper prints times of the same steps."""


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write one panel a model; the paper prints the times of S-SGD and Power-SGD, and two ratios, of ResNet-50."""
    panels = []
    for model, (_, key, _) in MODELS.items():
        known = {name: number(f"{TIMES}.{key}.{name}") / 1e3 for name in ("ssgd", "powersgd")}
        if model == "ResNet-50":
            known |= {name: known["ssgd"] * number(f"acpsgd.fig2.{claim}")
                      for name, claim in (("signsgd", "sign"), ("topk", "topk"))}  # fmt: skip
        paper = {name: (value, value) for name, value in known.items()}
        panels.append(
            Bars(
                model,
                [bar(rows, name, Setup(model), paper=paper.get(name)) for name in SHOWN],
                "iteration (s)",
            )
        )
    return draw_panels(NAME, panels, rows, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return verdicts on the ratios and orderings of the text."""
    found = [*judge_predictions(rows, ratios_here()), *judge_orders(rows, ORDERS)]
    if not by_calibration(rows):
        return complete(NAME, [], COMMAND)
    found.append(
        absent("acpsgd.fig2.oom", "what Sign-SGD's code keeps in memory is not modelled, only what ours would")
    )
    return complete(NAME, found, COMMAND)


def ratios_here() -> list[Prediction]:
    """Return the predictions for this figure's claims."""
    return [one for one in ratios() if one.claim.startswith("acpsgd.fig2.")]


def _times(steps: Steps, model: str) -> dict[str, float]:
    return {name: iteration_s(steps, name, Setup(model)) for name in METHODS}


def _faster(steps: Steps) -> tuple[bool, str]:
    times = _times(steps, "ResNet-50")
    slower = [times[name] / times["ssgd"] - 1 for name in METHODS[1:]]
    low, high = stated("acpsgd.intro.ssgd_faster")
    holds = low - 0.05 <= min(slower) and max(slower) <= high + 0.05
    return holds, f"{100 * min(slower):.0f} to {100 * max(slower):.0f} % slower"


def _topk_large(steps: Steps) -> tuple[bool, str]:
    times = _times(steps, "BERT-Large")
    return times["topk"] < times["ssgd"], f"{times['topk'] / times['ssgd']:.2f}x of S-SGD's time"


def _power_best(steps: Steps) -> tuple[bool, str]:
    wins = [min(METHODS[1:], key=_times(steps, model).__getitem__) == "powersgd" for model in MODELS]
    return all(wins), f"best for {sum(wins)} of {len(wins)} models"


def _power_small(steps: Steps) -> tuple[bool, str]:
    wins = [model for model in MODELS if _times(steps, model)["powersgd"] < _times(steps, model)["ssgd"]]
    return set(wins) == {"BERT-Base", "BERT-Large"}, f"faster for {', '.join(wins) or 'none'}"


ORDERS: dict[str, Rule] = {
    "acpsgd.intro.ssgd_faster": _faster,
    "acpsgd.fig2.topk_large": _topk_large,
    "acpsgd.fig2.power_best": _power_best,
    "acpsgd.fig2.power_small": _power_small,
}
