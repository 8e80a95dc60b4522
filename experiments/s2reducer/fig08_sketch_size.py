"""S2 Reducer Fig. 8: quality by the size of the sketch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ssfx.claims.verdicts import Verdict
from ssfx.evaluation.configured import experiment
from ssfx.evaluation.judging import absent, complete, held, number
from ssfx.evaluation.pages import counted
from ssfx.evaluation.quality_curves import compared, draw_curves, grouped, judged_order, quality, values
from ssfx.results.rows import Row

NAME = "s2reducer.fig8"
TITLE = "Quality by the size of the sketch"
CLAIMS = (NAME,)
NEEDS = {"experiment": "s2_ratio", "calibration": ""}
COMMAND = "ssfx run experiment=s2_ratio"

COLOURS = {"1": "#08306b", "0.5": "#2171b5", "0.25": "#6baed6", "0.1": "#e69f00", "0.05": "#d55e00"}
DEFAULT = 0.5
"""Of scheme s2reducer, which a case does not write down."""


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write quality over steps, a panel for each task and a line for each ratio lambda."""
    colours = {f"lambda = {ratio}": colour for ratio, colour in COLOURS.items()}
    panels = {model: dict(sorted(methods.items(), reverse=True)) for model, methods in grouped(rows, sketch).items()}
    return draw_curves(NAME, panels, colours, quality, rows, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return whether quality holds at the recommended ratio and falls below it."""
    if not rows:
        return complete(NAME, [], COMMAND)
    swept = sorted(float(ratio) for ratio in experiment("s2_ratio")["experiment"]["sweep"]["scheme.ratio"])
    found = [
        held("s2reducer.appB3.range", (swept[0], swept[-1]), tolerance=0.0),
        absent("s2reducer.appB3.gain_slight", "asks for communication times of GNMT-8 and of the paper's cluster"),
    ]
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


def sketch(row: Row) -> str:
    """Return the ratio of a row's sketch; those of several rows of hash functions are left out."""
    options = row.case.scheme_options
    return "" if "rows" in options else f"lambda = {float(options.get('ratio', DEFAULT)):g}"


def finding(rows: list[Row]) -> str:
    """Return how many of the claims hold."""
    return counted(judge(rows))
