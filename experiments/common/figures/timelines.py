"""Timelines of simulated steps: a box for every stage, a row for every resource, a panel for every plan."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from experiments.common.figures.figure import Figure
from experiments.common.figures.style import COLUMN_IN, ORIGIN_LINE, Axes, Picture, subplots
from ssfx.core.rows import Row
from ssfx.planning.plan import Lane
from ssfx.simulator import Simulated, Task

ROWS = {"device": "compute", "host": "host", "network": "network"}
"""Resources that are shown, from the top; copies to and from the host are drawn in its row."""
COLOURS = {
    "forward": "#e3e3e3",
    "backward": "#c9c9c9",
    "compress": "#e69f00",
    "to_host": "#9fd8c4",
    "from_host": "#9fd8c4",
    "all_gather": "#d55e00",
    "all_reduce": "#0072b2",
    "decompress": "#f0c36a",
}
LABELS = {
    "backward": "backward (B)",
    "compress": "sparsification (S)",
    "all_gather": "All-Gather",
    "all_reduce": "All-Reduce",
    "to_host": "copy to or from the host",
}
WHITE_ON = ("all_gather", "all_reduce")
ROW_IN = 0.24
ORIGIN = "Simulated (invented sizes and costs): the order of stages is what the example shows, not its milliseconds."


@dataclass(frozen=True)
class Timelines:
    """Timelines of one simulated step for each panel."""

    steps: Callable[[], Mapping[str, Simulated]]

    def __call__(self, what: Figure, rows: list[Row]) -> Picture:
        """Return the timelines, one below the other over the same time; the CSV has all stages."""
        from matplotlib.patches import Patch

        steps = self.steps()
        longest_ms = max(1e3 * step.iteration_s for step in steps.values())
        used = {panel: {_row(task) for task in _busy(step)} for panel, step in steps.items()}
        shown = {panel: [name for name in ROWS if name in there] for panel, there in used.items()}
        heights = [len(rows) * ROW_IN + 0.42 for rows in shown.values()]
        figure, grid = subplots(
            len(steps), 1, figsize=(2 * COLUMN_IN, sum(heights) + 0.75), height_ratios=heights, sharex=True
        )
        figure.suptitle(what.title, x=0.01, ha="left", fontweight="bold", fontsize=8)
        for (panel, step), axis in zip(steps.items(), grid.flat, strict=True):
            _draw_step(axis, panel, step, shown[panel])
            axis.set_xlim(0, 1.02 * longest_ms)
        grid.flat[-1].set_xlabel("time (ms)")
        kinds = {_kind(step, task) for step in steps.values() for task in _busy(step)}
        keys = [Patch(color=COLOURS[kind], label=label) for kind, label in LABELS.items() if kind in kinds]
        grid.flat[0].legend(
            handles=keys,
            loc="lower right",
            bbox_to_anchor=(1, 0.98),
            ncols=len(keys),
            columnspacing=1.2,
            handlelength=1.2,
        )
        figure.supxlabel(ORIGIN, x=0.01, ha="left", **ORIGIN_LINE)
        return figure, [
            {
                "panel": panel,
                "resource": task.resource,
                "stage": _kind(step, task),
                "tensors": _label(step, task),
                "start_ms": 1e3 * task.start_s,
                "end_ms": 1e3 * task.end_s,
            }
            for panel, step in steps.items()
            for task in _busy(step)
        ]

    def finding(self, rows: list[Row]) -> str:
        """Return the time of each step."""
        return ", ".join(f"{name} {1e3 * step.iteration_s:.2f} ms" for name, step in self.steps().items())


def _draw_step(axis: Axes, panel: str, step: Simulated, resources: list[str]) -> None:
    for task in _busy(step):
        row = resources.index(_row(task))
        kind = _kind(step, task)
        left, width = 1e3 * task.start_s, 1e3 * task.seconds
        axis.barh(row, width, 0.78, left=left, color=COLOURS[kind], edgecolor="white", linewidth=0.8)
        colour = "white" if kind in WHITE_ON else "black"
        axis.text(
            left + width / 2, row, _label(step, task), ha="center", va="center", fontsize=6, color=colour, clip_on=True
        )
    end = 1e3 * step.iteration_s
    axis.axvline(end, color="black", linewidth=0.8, linestyle=(0, (4, 2)))
    axis.set_title(f"{panel}: {end:.2f} ms", loc="left")
    axis.set_yticks(range(len(resources)), [ROWS[name] for name in resources])
    axis.set_ylim(len(resources) - 0.5, -0.5)


def _busy(step: Simulated) -> list[Task]:
    """Return the tasks that take time."""
    return [task for task in step.tasks if task.end_s > task.start_s]


def _row(task: Task) -> str:
    return "host" if task.resource in ("copy_out", "copy_in") else task.resource


def _kind(step: Simulated, task: Task) -> str:
    if task.stage != "exchange":
        return task.stage
    return _lane(step, task).collective


def _lane(step: Simulated, task: Task) -> Lane:
    return next(lane for i, (_, lane) in enumerate(step.plan.lanes()) if i == task.lane)


def _label(step: Simulated, task: Task) -> str:
    if task.stage == "exchange":
        return " ".join(f"G{name}" for name in _lane(step, task).tensors)
    numbers = task.name.replace(" .. ", "-")
    if task.stage == "compress":
        segments = [one.tensors for _, lane in step.plan.lanes() for one in lane.segments]
        joint = next(tensors for tensors in segments if task.name in (tensors[-1], ",".join(tensors)))
        numbers = f"{joint[0]}-{joint[-1]}" if len(joint) > 1 else joint[0]
    letter = {"backward": "B", "compress": "S"}.get(task.stage, "")
    return f"{letter}{numbers}" if letter else ""
