"""Steps that methods take to what dense training reaches, over thousands of steps: what a quality of auto rests on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.common.evaluation.quality_curves import origin
from experiments.common.figures.style import COLUMN_IN, ORIGIN_LINE, caption_text, save, style
from ssfx.core.rows import Row
from ssfx.lab.calibration.step_law import (
    EXPERIMENT,
    StepLaw,
    dense_runs,
    extra_steps,
    long_rows,
    method,
    place,
    step_laws,
)

NAME = "auto.step_law"
TITLE = "steps to a quality, by the steps that dense training takes to it"
CLAIMS = ()
NEEDS = {"experiment": EXPERIMENT, "calibration": ""}
NOTES = (
    "No paper's figure. A dot is a level of quality that dense training reached for the first time, and a run of the "
    "method with the same seed that reached it; crosses were never reached, and stand at the end of the run. Lines are "
    "the fit over all tasks: a delay and a factor.",
)

SHOWN = {
    "per_tensor/qsgd(bits=4,bucket=48,norm=max)": ("four bits", "#4292c6"),
    "powersgd": ("PowerSGD, rank 4", "#74c476"),
    "per_tensor/topk@0.05": ("top-k, density 0.05", "#fdae6b"),
    "per_tensor/topk@0.01": ("top-k, density 0.01", "#e6550d"),
}
"""By the name of `step_law.method`: words and colour. The table of docs/workloads.md has all methods."""


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write a panel for each task; nothing where no method was run beside dense training."""
    long = long_rows(rows)
    laws = {name: law for name, law in step_laws(long).items() if name in SHOWN}
    if not laws:
        return []
    import matplotlib.pyplot as plt

    tasks = sorted({task for law in laws.values() for task in law.tasks})
    table: list[dict[str, Any]] = []
    with style():
        size_in = (COLUMN_IN * max(1.7, len(tasks)), 3.1)
        figure, axes = plt.subplots(1, len(tasks), figsize=size_in, squeeze=False, layout="constrained")
        keys: dict[str, Any] = {}
        for task, axis in zip(tasks, axes[0], strict=True):
            longest = max(row.case.steps for row in long if row.case.model == task)
            (keys["dense"],) = axis.plot([0, longest], [0, longest], color="black", linewidth=0.8, linestyle="--")
            for name, (words, colour) in SHOWN.items():
                points = _points(task, name, long)
                if not points:
                    continue
                for reached, mark in ((True, "o"), (False, "x")):
                    shown = [(at, steps) for at, steps, there in points if there is reached]
                    at, steps = [x for x, _ in shown], [y for _, y in shown]
                    axis.scatter(at, steps, s=8, marker=mark, color=colour, alpha=0.6, linewidths=0.8)
                if law := laws.get(name):
                    ends = [1.0, float(longest)]
                    (keys[words],) = axis.plot(ends, [_steps(law, end) for end in ends], color=colour, linewidth=1.4)
                table += [
                    {"task": task, "method": name, "dense_steps": x, "steps": y, "reached": there}
                    for x, y, there in points
                ]
            axis.set_title(task, loc="left", fontweight="bold")
            axis.set(xlim=(0, longest), ylim=(0, longest), xlabel="steps of dense training to a quality")
            axis.grid()
        axes[0][0].set_ylabel("steps of the method to it")
        figure.legend(keys.values(), keys.keys(), loc="outside upper center", ncols=5, columnspacing=1.2)
        said = caption_text([origin(long)], figure.get_figwidth())
        figure.supxlabel(said, x=0.01, ha="left", **ORIGIN_LINE)
        return save(figure, NAME, table, rows, out)


def finding(rows: list[Row]) -> str:
    """Return the law of the methods that are shown."""
    laws = {name: law for name, law in step_laws(rows).items() if name in SHOWN}
    said = [f"{SHOWN[name][0]} {law.delay_steps:+.0f} steps {law.factor:+.1%}" for name, law in laws.items()]
    return "; ".join(said) or "no method was run beside dense training"


def _points(task: str, name: str, rows: list[Row]) -> list[tuple[float, float, bool]]:
    """Return steps of dense training, steps of the method, and whether it got there, of every level of every seed."""
    dense = dense_runs(rows)
    found = []
    for row in rows:
        if row.case.model == task and method(row) == name and place(row) in dense:
            run = extra_steps(dense[place(row)], row)
            found += [(at, at + extra, True) for at, extra in run.pairs]
            found += [(at, at + extra, False) for at, extra in run.bounds]
    return found


def _steps(law: StepLaw, at: float) -> float:
    return law.delay_steps + (1 + law.factor) * at
