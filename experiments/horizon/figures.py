"""The end of a schedule: the quality that methods reach in 10,000 steps, and the extra steps to it, by horizon."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from experiments.common.claims.grouped import grouped
from experiments.common.evaluation.quality_panels import QUALITY, origin
from experiments.common.figures.figure import Figure, say_origin
from experiments.common.figures.style import COLUMN_IN, Axes, Picture, caption_text, subplots
from ssfx.core.rows import Row
from ssfx.lab.calibration.step_law import Point, at_dense_rate, best_so_far, is_dense, method, steps_to
from ssfx.lab.workloads.metrics.tally import better

METHODS = {
    "ddp_quantized/qsgd(bits=4,bucket=48,norm=max)": ("four bits", "#4292c6"),
    "per_tensor/ef_signsgd": ("signs", "#9e9ac8"),
    "powersgd/powersgd(rank=32)": ("rank 32", "#238b45"),
    "powersgd": ("rank 4", "#74c476"),
    "per_tensor/topk@0.1": ("top-k, 10 %", "#fdae6b"),
    "per_tensor/topk@0.01": ("top-k, 1 %", "#e6550d"),
    "per_tensor/dgc@0.01": ("DGC, 1 %, with its warm-up", "#a63603"),
}
"""By how the name of `step_law.method` begins: words and colour; a longer name of the same begin has its own line."""
EARLY = 0.2
"""Share of the steps of dense training that the early horizon is: 2,000 of 10,000, as long_quality trains."""


@dataclass(frozen=True)
class Run:
    """One run of a method beside the dense run of its seed.

    best: quality reached in all. dense: that of the dense run. levels: steps of dense training to each quality that it
    reached for the first time, and steps of the method to it, None where it never came there.
    """

    row: Row
    best: float
    dense: float
    levels: Sequence[tuple[float, float | None]]

    @property
    def behind(self) -> float:
        """How much worse it ends, over the quality of dense training; below 0 where it ends better."""
        worse = self.best / self.dense - 1
        return worse if better(str(self.row.case.target_metric), 0, 1) else -worse

    def extra(self, share: float) -> float | None:
        """Extra steps, as a share, to the best of dense training's first `share` of steps; None: never reached."""
        at, there = max(level for level in self.levels if level[0] <= share * self.row.case.steps)
        return None if there is None else there / at - 1


def runs_of(rows: Sequence[Row]) -> dict[str, dict[str, list[Run]]]:
    """Return the runs of each task by method, dense training among them; only where a dense run has their seed."""
    found: dict[str, dict[str, list[Run]]] = {}
    for task, own in sorted(grouped(at_dense_rate(row for row in rows if row.curve), _task).items()):
        dense = {row.case.seed: row for row in own if is_dense(row)}
        for name, words in [("", "dense"), *((name, words) for name, (words, _) in METHODS.items())]:
            some = [row for row in own if row.case.seed in dense and name == _known(row)]
            if some:
                found.setdefault(task, {})[words] = [_run(dense[row.case.seed], row) for row in some]
    return found


def _task(row: Row) -> str:
    """Return the network, which tells the tasks apart."""
    return row.case.model


def _known(row: Row) -> str | None:
    """Return the key of METHODS for a row, "" for dense training, None for another method."""
    if is_dense(row):
        return ""
    return max((name for name in METHODS if method(row).startswith(name)), key=len, default=None)


def _run(dense: Row, row: Row) -> Run:
    metric = str(dense.case.target_metric)
    path, levels = best_so_far(row, metric), best_so_far(dense, metric)
    there = [(step, steps_to(path, level, metric)) for step, level in levels]
    return Run(row, path[-1][1], levels[-1][1], there)


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
                (keys[words],) = above.plot(*_steps(best_so_far(run.row, metric)), color=colour, linewidth=1.0)
                table += _lines(task, words, run)
                if words != "dense":
                    _extra(below, run, colour)
        longest = max(run.row.case.steps for some in runs.values() for run in some)
        above.set_title(task, loc="left", fontweight="bold")
        above.set(xlim=(0, longest), ylabel=f"{QUALITY[metric]}, best so far")
        if better(metric, 0, 1):
            above.set_yscale("log")
        below.axhline(0, color="black", linewidth=0.8, linestyle="--")
        below.set(xlim=(0, longest), xlabel="steps of dense training", ylabel="extra steps (%)")
        for axis in (above, below):
            axis.grid()
    canvas.legend(keys.values(), keys.keys(), loc="outside upper center", ncols=4, columnspacing=1.2)
    used = [run.row for runs in tasks.values() for some in runs.values() for run in some]
    said = origin(used, "a line for each of")
    say_origin(canvas, caption_text([f"{said} Crosses: never reached."], canvas.get_figwidth()))
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
    """Return by method and task how much worse runs end, and their extra steps early and to the end of dense training.

    In brackets after a task stands the range of its dense seeds: smaller gaps are ties.
    """
    parts = []
    for task, runs in runs_of(rows).items():
        ends = [run.best for run in runs["dense"]]
        noise = f" (dense seeds within {max(ends) / min(ends) - 1:.1%})" if len(ends) > 1 else " (one dense seed)"
        methods = [
            f"{words} {median(run.behind for run in some):+.1%}, {_words(some, EARLY)} and {_words(some, 1.0)} steps"
            for words, some in runs.items()
            if words != "dense"
        ]
        parts += [f"{task}{noise}: {'; '.join(methods)}"] if methods else []
    return ". ".join(parts) or "no method was run beside dense training"


def _words(runs: Sequence[Run], share: float) -> str:
    """Return the median of extra steps, of runs that never got there at least so many."""
    found = [run.extra(share) for run in runs]
    known = [one for one in found if one is not None]
    return f"{median(known):+.0%}" if 2 * len(known) > len(found) else "never"


HORIZON = Figure(
    "horizon.quality",
    "final quality and extra steps, by horizon",
    _draw,
    about=(),
    needs={"experiment": "horizon", "evaluate": True},
    said=finding,
    command="ssfx run experiment=horizon engine=virtual data.root=DIR",
    notes=(
        "No paper's figure: small networks to the end of a schedule that falls to zero. Percentages are how much worse "
        "the best quality is than that of dense training of the same seed, then extra steps to what dense training had "
        "reached after a fifth of its steps, and in all.",
    ),
)
