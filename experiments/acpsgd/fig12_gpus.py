"""ACP-SGD Fig. 12: iteration time by number of GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.acpsgd_panels import COLOURS, NOTE, iteration_s, line
from experiments.common.evaluation.judging import complete, held
from experiments.common.evaluation.row_steps import judge_predictions, prediction_bars
from experiments.common.evaluation.step_plots import Lines, draw_panels
from experiments.common.figures.auto import AUTO
from experiments.common.validation.published_acpsgd import Setup, ratios
from experiments.common.validation.published_steps import Steps
from ssfx.core.rows import Row

NAME = "acpsgd.fig12"
TITLE = "Iteration time by number of GPUs"
CLAIMS = (NAME,)
NEEDS = {"experiment": "acpsgd_sweeps", "calibration": bool}
COMMAND = "ssfx run experiment=acpsgd_sweeps"
NOTES = (NOTE,)

METHODS = ("ssgd", "powersgd-star", "acpsgd")
SHOWN = (*METHODS, AUTO)
MODELS = ("ResNet-50", "BERT-Base")
GPUS = (8, 16, 32, 64)


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write one panel a model; the paper prints growths only, and does not name its models."""
    panels = []
    for model in MODELS:
        at = {gpus: Setup(model, gpus=gpus) for gpus in GPUS}
        lines = [line(rows, name, [(gpus, seconds(name, at[gpus])) for gpus in GPUS]) for name in SHOWN]
        panels.append(Lines(model, lines, "GPUs", "iteration (s)", log_x=True))
    own = [one for one in ratios() if one.claim.startswith("acpsgd.fig12.")]
    growth = prediction_bars(rows, own, "64 over 8 GPUs, mean of four models", COLOURS)
    here = [row for row in rows if row.case.cluster.name == "acpsgd_10gbe"]
    return draw_panels(NAME, [*panels, growth], here, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return verdicts on the growth from 8 to 64 GPUs, of four models on average."""
    own = [one for one in ratios() if one.claim.startswith("acpsgd.fig12.")]
    sizes = held("acpsgd.headline.gpus", (float(min(GPUS)), float(max(GPUS))), tolerance=0.0)
    return complete(NAME, [sizes, *judge_predictions(rows, own)], COMMAND)


def seconds(name: str, setup: Setup) -> Callable[[Steps], float]:
    """Return how the iteration time follows from steps."""

    def value(steps: Steps) -> float:
        return iteration_s(steps, name, setup)

    return value
