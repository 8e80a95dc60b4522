"""S2 Reducer Fig. 8: quality by the size of the sketch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.judging import complete, held, number
from experiments.common.evaluation.quality_curves import compared, draw_curves, grouped, judged_order, quality, values
from experiments.common.evaluation.row_steps import judge_orders, values_by_calibration
from experiments.common.evaluation.step_plots import Line, Lines, draw_panels
from experiments.common.validation.published_s2reducer import timed
from experiments.common.validation.published_steps import Steps, method
from ssfx.core.rows import Row

NAME = "s2reducer.fig8"
TITLE = "Quality by the size of the sketch"
NEEDS = {"experiment": {"s2_ratio", "s2_sparse"}.__contains__}
COMMAND = "ssfx run experiment=s2_ratio"

COLOURS = {"1": "#08306b", "0.5": "#2171b5", "0.25": "#6baed6", "0.1": "#e69f00", "0.05": "#d55e00"}
SWEPT = (0.05, 0.1, 0.25, 0.5, 1.0)
SLIGHT = 0.1
"""A reduction of communication below this counts as slight."""
DEFAULT = 0.5
"""Of scheme s2reducer, which a case does not write down."""


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write quality over steps, a panel for each task and a line for each ratio lambda."""
    trained = [row for row in rows if not row.case.calibration]
    if not trained:
        return draw_panels(NAME, [communication(rows)], rows, out)
    rows = trained
    colours = {f"lambda = {ratio}": colour for ratio, colour in COLOURS.items()}
    panels = {model: dict(sorted(methods.items(), reverse=True)) for model, methods in grouped(rows, sketch).items()}
    return draw_curves(NAME, panels, colours, quality, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return whether quality holds at the recommended ratio and falls below it."""
    found = [
        held("s2reducer.appB3.range", (SWEPT[0], SWEPT[-1]), tolerance=0.0),
        *judge_orders(rows, {"s2reducer.appB3.gain_slight": _slight}),
    ]
    rows = [row for row in rows if not row.case.calibration]
    best = f"lambda = {number('s2reducer.appB3.best'):g}"
    pairs = []
    for model, methods in grouped(rows, sketch).items():
        metric = next((name for name in ("top1", "perplexity") if values(methods.get(best, []), name)), "")
        if metric and {"lambda = 1", best, "lambda = 0.05"} <= set(methods):
            own = {name: [(-1 if metric == "perplexity" else 1) * value for value in values(runs, metric)]
                   for name, runs in methods.items()}  # fmt: skip
            pairs += [
                (f"{model} 0.5 over 1", *compared(own[best], own["lambda = 1"]), "equal"),
                (f"{model} 0.5 over 0.05", *compared(own[best], own["lambda = 0.05"]), "above"),
            ]
    if pairs:
        found.append(judged_order("s2reducer.appB3.best", pairs))
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


def sketch(row: Row) -> str:
    """Return the ratio of a row's sketch; those of several rows of hash functions are left out."""
    options = row.case.scheme_options
    return "" if "rows" in options else f"lambda = {float(options.get('ratio', DEFAULT)):g}"
