"""The end of a schedule: the quality that methods reach in 10,000 steps, and the extra steps to it, by horizon."""

from collections.abc import Sequence
from typing import Any

from experiments.common.evaluation.horizon import EXPERIMENT, METHODS, Run, beside_dense, runs_of
from experiments.common.evaluation.quality_panels import QUALITY, origin
from experiments.common.figures.figure import Figure, say_origin
from experiments.common.figures.style import COLUMN_IN, Axes, Picture, caption_text, subplots
from ssfx.core.rows import Row
from ssfx.lab.calibration.long_runs import Point, best_so_far
from ssfx.lab.workloads.metrics.tally import better

PERPLEXITIES = (60, 80, 100, 150, 200, 300)
"""Ticks."""


def _draw(figure: Figure, rows: list[Row]) -> Picture | None:
    """Return a column for each task: quality by steps above, extra steps by those of dense training below."""
    tasks = {task: runs for task, runs in runs_of(rows).items() if len(runs) > 1}
    if not tasks:
        return None
    canvas, axes = subplots(2, len(tasks), figsize=(COLUMN_IN * 0.75 * max(2, len(tasks)), 4.4))
    table: list[dict[str, Any]] = []
    keys: dict[str, Any] = {}
    for (task, runs), above, below in zip(tasks.items(), axes[0], axes[1], strict=True):
        metric = str(next(iter(runs["dense"])).row.case.target_metric)
        for words, colour in [("dense", "black"), *METHODS.values()]:
            for run in runs.get(words, ()):
                path = [*best_so_far(run.row, metric), (float(run.row.case.steps), run.best)]
                (keys[words],) = above.plot(*_steps(path), color=colour, linewidth=1.0)
                table += _lines(task, words, run)
                if words != "dense":
                    _extra(below, run, colour)
        longest = max(run.row.case.steps for some in runs.values() for run in some)
        above.set_title(task, loc="left", fontweight="bold")
        above.set(xlim=(0, longest), ylabel=f"{QUALITY[metric]}, best so far")
        if better(metric, 0, 1):
            above.set_yscale("log")
            above.set_yticks(PERPLEXITIES, [str(tick) for tick in PERPLEXITIES])
            above.minorticks_off()
        below.axhline(0, color="black", linewidth=0.8, linestyle="--")
        below.set(xlim=(0, longest), xlabel="steps of dense training", ylabel="extra steps (%)")
        for axis in (above, below):
            axis.grid()
    canvas.legend(keys.values(), keys.keys(), loc="outside upper center", ncols=4, columnspacing=1.2)
    used = [run.row for runs in tasks.values() for some in runs.values() for run in some]
    said = origin(used, "a line for each of")
    say_origin(canvas, caption_text([f"{said} Crosses: never reached, at the end of the run."], canvas.get_figwidth()))
    return canvas, table, used


def _steps(path: Sequence[Point]) -> tuple[list[float], list[float]]:
    return [step for step, _ in path], [value for _, value in path]


def _extra(axis: Axes, run: Run, colour: str) -> None:
    """Draw extra steps to the levels that were reached, and a cross for each that was not: what it took at least."""
    reached = [(at, 100 * (there / at - 1)) for at, there in run.levels if there is not None]
    missed = [(at, 100 * (run.row.case.steps / at - 1)) for at, there in run.levels if there is None]
    axis.plot(*_steps(reached), color=colour, linewidth=1.0)
    axis.scatter(*_steps(missed), s=8, marker="x", color=colour, linewidths=0.6)


def _lines(task: str, words: str, run: Run) -> list[dict[str, Any]]:
    own = {"task": task, "method": words, "seed": run.row.case.seed, "best": run.best, "worse_than_dense": run.behind}
    return [{**own, "dense_steps": at, "steps": "never" if there is None else there} for at, there in run.levels]


def finding(rows: list[Row]) -> str:
    """Return by method and task how much worse runs end, and their extra steps early and late.

    In brackets after a task stands the range of its dense seeds: smaller gaps are ties.
    """
    parts = []
    for task, runs in runs_of(rows).items():
        ends = [run.best for run in runs["dense"]]
        noise = f" (dense seeds within {max(ends) / min(ends) - 1:.1%})" if len(ends) > 1 else " (one dense seed)"
        methods = [
            "{} {}, {} and {} steps".format(words, *beside_dense(some))
            for words, some in runs.items()
            if words != "dense"
        ]
        parts += [f"{task}{noise}: {'; '.join(methods)}"] if methods else []
    return ". ".join(parts) or "no method was run beside dense training"


HORIZON = Figure(
    "horizon.quality",
    "final quality and extra steps, by horizon",
    _draw,
    about=(),
    needs={"experiment": EXPERIMENT, "evaluate": True},
    said=finding,
    command="ssfx run experiment=horizon engine=virtual data.root=DIR",
    notes=(
        "No paper's figure: small networks to the end of a schedule that falls to zero. Percentages are how much worse "
        "the best quality is than that of dense training of the same seed, then extra steps to what dense training had "
        "reached after a fifth, and after half of its steps.",
    ),
)
