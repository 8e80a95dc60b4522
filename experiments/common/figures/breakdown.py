"""Stacked bars of where the time of an iteration goes, per scheme, with the communication that backward hides."""

from typing import Any

from experiments.common.figures.auto import AUTO, budget_said, mark_bar
from experiments.common.figures.figure import Figure
from experiments.common.figures.style import ORIGIN_HATCHES, Axes, Picture, drawn_panels, facts, few
from ssfx.core.rows import Row
from ssfx.lab.results.comparisons import Panel, Spread, metric, panels

PARTS = {
    "forward_s": ("forward", "#bdbdbd"),
    "backward_s": ("backward", "#7f7f7f"),
    "sparsify_s": ("sparsification", "#e69f00"),
    "exposed_comm_s": ("exposed communication", "#d55e00"),
    "step_s": ("optimizer step", "#009e73"),
    "other_s": ("other", "#e8e8e8"),
}
HIDDEN_COLOUR = "#d55e00"


def breakdown(_: Figure, rows: list[Row]) -> Picture | None:
    """Return stacked bars, one run per scheme; hatched is communication that compute hides."""
    shown = [few(panel) for panel in panels(rows)]
    if not shown:
        return None
    text = [*facts(shown, spread=False), *budget_said(rows)]
    canvas, table = drawn_panels(shown, lines, _draw_panel, text, "time per iteration (ms)")
    handles, labels = canvas.axes[0].get_legend_handles_labels()
    columns = 4 if len(shown) > 1 else 2
    canvas.legend(handles, labels, loc="outside upper center", ncols=columns, columnspacing=1.2)
    canvas.set_figheight(canvas.get_figheight() + 0.14 * len(labels) / columns)
    return canvas, table


def finding(rows: list[Row]) -> str:
    """Return, per workload, the share of dense DDP's iteration that communication leaves exposed."""
    parts = []
    for panel in panels(rows):
        for line in lines(panel):
            if line["scheme"] == "ddp":
                share = line["exposed_comm_s"] / line["iteration_s"]
                parts.append(f"{panel.name} {share:.0%}")
    return "exposed communication of dense DDP, share of the iteration: " + ", ".join(parts) if parts else "no DDP run"


def lines(panel: Panel) -> list[dict[str, Any]]:
    """Return one line of the figure's table per bar: the parts of one run, in seconds."""
    found = []
    single_s = Spread.of(panel.single, "iteration_s").median if panel.single else None
    for label, rows in panel.bars.items():
        run = sorted(rows, key=lambda row: (metric(row, "iteration_s"), row.run_id))[(len(rows) - 1) // 2]
        parts = {name: metric(run, name) for name in PARTS}
        hidden_s = max(0.0, metric(run, "comm_s") - parts["exposed_comm_s"])
        found.append(
            {
                **panel.columns(),
                "scheme": label,
                "run": run.run_id,
                "runs": len(rows),
                "iteration_s": metric(run, "iteration_s"),
                "ideal_iteration_s": single_s,
                **parts,
                "hidden_comm_s": hidden_s,
                **panel.mark(label),
            }
        )
    return found


def _draw_panel(panel: Panel, table: list[dict[str, Any]], axis: Axes) -> None:
    places = range(len(table))
    left = [0.0] * len(table)
    for name, (label, colour) in PARTS.items():
        width = [line[name] * 1e3 for line in table]
        axis.barh(
            places, width, 0.72, left=left, label=label, color=colour, hatch=ORIGIN_HATCHES[panel.kind],
            edgecolor="white", linewidth=0,
        )  # fmt: skip
        left = [a + b for a, b in zip(left, width, strict=True)]
        if name == "sparsify_s":
            compute_end = left
    hidden = [line["hidden_comm_s"] * 1e3 for line in table]
    start = [max(0.0, end - width) for end, width in zip(compute_end, hidden, strict=True)]
    axis.barh(
        [y + 0.24 for y in places], hidden, 0.24, left=start, label="hidden communication", color="white",
        hatch="//////", edgecolor=HIDDEN_COLOUR, linewidth=0.5,
    )  # fmt: skip
    for y, rows in enumerate(panel.bars.values()):
        if rows[0].case.scheme == AUTO:
            mark_bar(axis, y, left[y], 0.72, horizontal=True)
    iteration = [line["iteration_s"] * 1e3 for line in table]
    axis.scatter(iteration, places, marker="|", color="black", s=60, linewidth=1, label="iteration time")
    if ideal_s := table[0]["ideal_iteration_s"]:
        axis.axvline(ideal_s * 1e3, color="black", linewidth=0.8, linestyle=(0, (4, 2)))
    axis.set_xlim(0, max(left + iteration) * 1.05)
