"""S2 Reducer Fig. 8: quality by the size of the sketch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.gaps import COMMAND as LONG_COMMAND
from experiments.common.evaluation.gaps import LONG, Gap, Wanted, judged_order, no_row, task_of, tasks
from experiments.common.evaluation.judging import complete, held, number
from experiments.common.evaluation.quality_panels import Panel, draw_quality
from experiments.common.evaluation.row_steps import judge_orders, values_by_calibration
from experiments.common.evaluation.s2reducer_panels import LOSSLESS, sketched
from experiments.common.evaluation.step_plots import Line, Lines, draw_panels
from experiments.common.validation.published_s2reducer import timed
from experiments.common.validation.published_steps import Steps, method
from ssfx.core.rows import Row

NAME = "s2reducer.fig8"
TITLE = "Quality by the size of the sketch"
NEEDS = {"experiment": (LONG, "s2_sparse").__contains__}
COMMAND = LONG_COMMAND

COLOURS = {"1": "#08306b", "0.5": "#2171b5", "0.25": "#6baed6", "0.1": "#e69f00", "0.05": "#d55e00"}
PANELS = {"vgg": "VGG on CIFAR-10, paper: ResNet-50", "lstm": "LSTM on WikiText-2, paper: GNMT-8"}
"""The word in the name of our network, and our title."""
SWEPT = (0.05, 0.1, 0.25, 0.5, 1.0)
SLIGHT = 0.1
"""A reduction of communication below this counts as slight."""


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write quality over steps and at the end by ratio lambda; without long runs, the time of communication by it."""
    colours = {LOSSLESS: "#5f5f5f", **{f"lambda = {ratio}": colour for ratio, colour in COLOURS.items()}}
    found = tasks(_long(rows), sketched)
    panels = [Panel(title, task_of(found, word), colours, LOSSLESS) for word, title in PANELS.items()]
    simulated = [row for row in rows if row.case.calibration]
    return draw_quality(NAME, TITLE, panels, out) or draw_panels(NAME, [communication(rows)], simulated, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return whether quality holds at the recommended ratio and falls below it."""
    found = [
        held("s2reducer.appB3.range", (SWEPT[0], SWEPT[-1]), tolerance=0.0),
        *judge_orders(rows, {"s2reducer.appB3.gain_slight": _slight}),
    ]
    best, most, least = (f"lambda = {ratio:g}" for ratio in (number("s2reducer.appB3.best"), SWEPT[-1], SWEPT[0]))
    known = [task for task in tasks(_long(rows), sketched) if task.knows(best, most, least)]
    pairs: list[tuple[str, Gap, Wanted]] = []
    for task in known:
        pairs += [
            (f"{task.model}: {best} over {most}", task.gap(best, most), "equal"),
            (f"{task.model}: {best} over {least}", task.gap(best, least), "above"),
        ]
    claim = "s2reducer.appB3.best"
    words = "; ".join(task.words for task in known)
    found.append(judged_order(claim, pairs, words) if pairs else no_row(claim, [best, most, least]))
    return complete(NAME, found, COMMAND, cost="minutes on two cores")


def communication(rows: list[Row]) -> Lines:
    """Return the simulated time of communication over lambda, for block-sparse ResNet-50."""
    points: dict[str, list[tuple[float, float]]] = {}
    for ratio in SWEPT:
        for calibration, value in values_by_calibration(rows, lambda steps, r=ratio: _comm_s(steps, r)).items():  # type: ignore[misc]
            points.setdefault(calibration, []).append((ratio, value))
    line = Line("S2 Reducer, block-sparse ResNet-50", "#0072b2", points)
    return Lines("communication by lambda", [line], "lambda", "communication (s)", log_x=True)


def _comm_s(steps: Steps, ratio: float) -> float:
    how, at = timed("s2reducer")
    return steps.step(method(how.scheme, **{**dict(how.options), "ratio": ratio}), at).comm_s


def _slight(steps: Steps) -> tuple[bool, str]:
    best = number("s2reducer.appB3.best")
    left = _comm_s(steps, best / 2) / _comm_s(steps, best)
    return left > 1 - SLIGHT, f"{best / 2:g} leaves {100 * left:.0f} % of the communication of {best:g}, ResNet-50"


def _long(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row.case.experiment == LONG]
