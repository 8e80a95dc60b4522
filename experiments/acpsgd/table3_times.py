"""ACP-SGD Table III: iteration times of four methods on four models, 32 GPUs on 10 Gb/s Ethernet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from experiments.common.claims.verdicts import Verdict, counted
from experiments.common.evaluation.acpsgd_panels import NOTE, bar
from experiments.common.evaluation.judging import complete, number
from experiments.common.evaluation.row_steps import NoRow, Rule, by_calibration, judge_orders, judge_predictions
from experiments.common.evaluation.step_plots import Bars, draw_panels
from experiments.common.figures.auto import AUTO
from experiments.common.validation.published_acpsgd import MODELS, Setup, table_3, timed
from experiments.common.validation.published_steps import Prediction, Steps, mean, over
from ssfx.core.rows import Row

NAME = "acpsgd.table3"
TITLE = "Iteration times of ACP-SGD and three other methods"
CLAIMS = (NAME,)
NEEDS = {"experiment": "acpsgd_models", "calibration": bool}
COMMAND = "ssfx run experiment=acpsgd_models"
NOTES = (NOTE,)

METHODS = ("ssgd", "powersgd", "powersgd-star", "acpsgd")
SHOWN = (*METHODS, AUTO)


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write one panel a model: simulated times as bars, the paper's as open marks."""
    panels = []
    for model, (_, key, _) in MODELS.items():
        bars = []
        for name in SHOWN:
            paper = (number(f"{NAME}.{key}.{name}"),) * 2 if name in METHODS else None
            bars.append(bar(rows, name, Setup(model), scale=1e3, paper=paper))
        panels.append(Bars(model, bars, "iteration (ms)"))
    return draw_panels(NAME, panels, rows, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return verdicts on every time, on the averages of their ratios, and on the orderings."""
    predictions = [*table_3(), *averages()]
    return complete(NAME, [*judge_predictions(rows, predictions), *judge_orders(rows, ORDERS)], COMMAND)


def averages() -> list[Prediction]:
    """Return the ratios that the text takes from the table."""
    gain = {name: [over(timed(name, Setup(m)), timed("acpsgd", Setup(m))) for m in MODELS] for name in METHODS}
    slower = [over(timed(name, Setup("ResNet-50")), timed("ssgd", Setup("ResNet-50"))) for name in POWER]
    both = [value for name in POWER for value in gain[name]]

    def said(claim: str, value: object) -> Prediction:
        return Prediction(claim, "Table III", "averages", value)  # type: ignore[arg-type]

    large = list(MODELS).index("BERT-Large")
    return [
        said("acpsgd.headline.ssgd_avg", mean(gain["ssgd"])),
        said("acpsgd.headline.power_avg", mean(both)),
        said("acpsgd.headline.ssgd_max", gain["ssgd"][large]),
        said("acpsgd.headline.power_max", gain["powersgd-star"][large]),
        said("acpsgd.table3.avg_power", mean(gain["powersgd"])),
        said("acpsgd.table3.avg_powerstar", mean(gain["powersgd-star"])),
        said("acpsgd.table3.resnet50_slow", mean(slower)),
        said("acpsgd.table3.bertlarge_power", gain["powersgd"][large]),
    ]


def finding(rows: list[Row]) -> str:
    """Return what ACP-SGD gains over S-SGD on average, by calibration."""
    said = []
    for calibration, steps in by_calibration(rows).items():
        try:
            gains = [over(timed("ssgd", Setup(model)), timed("acpsgd", Setup(model)))(steps) for model in MODELS]
        except NoRow:
            continue
        said.append(f"{fmean(gains):.2f}x ({calibration})")
    paper = number("acpsgd.headline.ssgd_avg")
    return f"ACP-SGD over S-SGD on average: {', '.join(said)}; paper {paper:g}x ({counted(judge(rows))})"


def _s(steps: Steps, name: str, model: str) -> float:
    return steps.step(*timed(name, Setup(model))).iteration_s


def _best(steps: Steps) -> tuple[bool, str]:
    wins = [min(METHODS, key=lambda name: _s(steps, name, model)) == "acpsgd" for model in MODELS]
    return all(wins), f"fastest for {sum(wins)} of {len(wins)} models"


def _star(steps: Steps) -> tuple[bool, str]:
    ratio = {model: _s(steps, "powersgd-star", model) / _s(steps, "powersgd", model) for model in MODELS}
    small = all((ratio[model] < 1) == model.startswith("ResNet") for model in MODELS)
    return small, ", ".join(f"{model} {value:.2f}x" for model, value in ratio.items())


POWER = ("powersgd", "powersgd-star")
ORDERS: dict[str, Rule] = {"acpsgd.table3.best": _best, "acpsgd.table3.star_small": _star}
