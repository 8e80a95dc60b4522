"""Bars of schemes: grouped, a panel for each model and calibration, or stacked by where the time of an iteration goes.

Beside grouped bars stand what they are judged by, dense DDP and the ideal, and below them the claims they speak to.
Stacked bars show the communication that backward hides.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.common.claims.grouped import grouped
from experiments.common.claims.simulated import claim_columns, judged
from experiments.common.claims.values import SPEED
from experiments.common.claims.verdicts import Verdict
from experiments.common.figures.auto import AUTO, COLOUR, LABEL, auto_of, budget_said, mark_bar
from experiments.common.figures.figure import Figure
from experiments.common.figures.paper_words import OWN, SCHEMES, TIMES, columns, panel_order, panel_title, scheme_name
from experiments.common.figures.style import (
    COLUMN_IN,
    ORIGIN_HATCHES,
    Axes,
    Picture,
    drawn_panels,
    facts,
    few,
    frame,
    scheme_colour,
    subplots,
)
from ssfx.core.rows import Row
from ssfx.lab.results.comparisons import (
    DENSE_BASELINE,
    Cell,
    Panel,
    Spread,
    against_dense,
    as_the_paper_ran,
    cells,
    metric,
    panels,
)

PANEL_IN = 1.65
"""Height of a panel."""


@dataclass(frozen=True)
class Groups:
    """What a figure of grouped bars varies, and what its bars are.

    `at` returns where the group of a cell stands and what it is called, `panel` what a panel has in common beside the
    calibration.
    """

    varied: str
    at: Callable[[Cell], tuple[float, str]]
    panel: Callable[[Cell], str] = lambda cell: panel_title(cell, "")
    metric: str = SPEED
    label: str = "throughput (samples/s)"
    schemes: tuple[str, ...] = tuple(SCHEMES)
    paper: Callable[[Cell, str], float | None] = lambda _cell, _scheme: None
    """The value that the paper prints for a scheme in a cell's setting, drawn as an open mark."""

    def __call__(self, what: Figure, rows: list[Row]) -> Picture | None:
        """Return the figure from the simulated rows; None without rows."""
        own = sorted(cells(rows), key=lambda cell: (panel_order(cell), cell.calibration, self.at(cell)))
        ran = list(map(as_the_paper_ran, own))
        shown = grouped(ran, lambda cell: (self.panel(cell), cell.calibration))
        if not shown:
            return None
        drawn = [cell for part in shown.values() for cell in part]
        calibrations = sorted({calibration for _, calibration in shown})
        panels = list(dict.fromkeys(panel for panel, _ in shown))
        schemes = [name for name in self.schemes if any(name in cell.rows for cell in drawn)]
        size_in = (2 * COLUMN_IN, PANEL_IN * len(panels) + 0.75)
        figure, grid = subplots(len(panels), len(calibrations), figsize=size_in, sharey="row")
        for (panel, calibration), part in shown.items():
            axis = grid[panels.index(panel), calibrations.index(calibration)]
            self._draw_panel(axis, panel, part, schemes)
        for axis in [axis for axis in grid.flat if not axis.patches]:
            axis.remove()
        for axes in grid:
            axes[0].set_ylabel(self.label)
        batches = sorted({f"{cell.case.model} {cell.case.batch_size}" for cell in drawn})
        origin = f"Simulated: one step in virtual time for each setting. Samples per device: {', '.join(batches)}."
        if any(cell.extrapolated(scheme) for cell in drawn for scheme in cell.rows):
            origin += " *: rests on costs beyond the range for which they are known."
        if any(cell.sent(scheme) for cell in drawn for scheme in cell.rows):
            origin += " d: sends dense, whatever density was asked for."
        if any(cell is not at_best for cell, at_best in zip(ran, own, strict=True)):
            origin += " Methods as the paper ran them."
        frame(figure, what.title, origin, ncols=6)
        table = [line for cell in own for line in self.lines(cell)]
        return figure, [*table, *claim_columns(what.name, rows)]

    def lines(self, cell: Cell) -> list[dict[str, Any]]:
        """Return one line of the figure's table per scheme; what does not fit into memory has no times."""
        ideal = cell.ideal(SPEED)
        table = []
        for scheme, row in cell.rows.items():
            speed = cell.value(scheme, SPEED) if cell.fits(scheme) else None
            table.append(
                {
                    "workload": f"{cell.case.model} / {cell.case.dataset}",
                    **columns(cell, scheme, "cluster world_size batch_size origin hardware"),
                    self.varied: self.at(cell)[1],
                    **columns(cell, scheme, "scheme compressor density sent"),
                    "iteration_s": cell.value(scheme, "iteration_s") if cell.fits(scheme) else None,
                    "samples_per_s": speed,
                    "vs_ddp": against_dense(cell, scheme),
                    "ideal_samples_per_s": ideal,
                    "scaling_factor": speed / ideal if speed and ideal else None,
                    "memory_gib": (row.metrics.get("peak_memory_bytes") or 0) / 2**30 or None,
                    **columns(cell, scheme, "fits extrapolated run"),
                }
            )
        return table

    def finding(self, rows: Sequence[Row]) -> str:
        """Return, by calibration, what the best scheme and SSFusion gain over dense DDP in the settings of the figure.

        scheme=auto, which is not of the paper, is never the best and is named apart.
        """
        parts = []
        for calibration, part in sorted(grouped(cells(rows), lambda cell: cell.calibration).items()):
            best = sorted(max(gains) for cell in part if (gains := _gains(cell)))
            with_auto = ((cell, label) for cell in part if (label := auto_of(cell)) is not None)
            auto = sorted(gain for cell, label in with_auto if (gain := against_dense(cell, label)) is not None)
            if best:
                said = "best " + " to ".join(f"{gain:.2f}x ({label})" for gain, label in (best[0], best[-1]))
                full = [gain for cell in part for gain, scheme in _gains(cell) if scheme == "ssfusion_oi"]
                said += f", ssfusion_oi {min(full):.2f}x to {max(full):.2f}x" if full else ""
                said += f" (scheme=auto, not of the paper: {auto[0]:.2f}x to {auto[-1]:.2f}x)" if auto else ""
                parts.append(f"{calibration}: {said}")
        return f"simulated throughput over dense DDP, {'; '.join(parts)}" if parts else "no scheme beside dense DDP"

    def _draw_panel(self, axis: Axes, title: str, part: Sequence[Cell], schemes: Sequence[str]) -> None:
        width = 0.84 / len(schemes)
        for x, cell in enumerate(part):
            here = [scheme for scheme in schemes if scheme in cell.rows]
            start = x - width * (len(here) - 1) / 2
            none_fits = not any(map(cell.fits, here))
            if none_fits:
                axis.annotate(
                    "no scheme fits",
                    (x, 0),
                    (0, 4),
                    textcoords="offset points",
                    ha="center",
                    fontsize=6.5,
                    color="#555555",
                )
            for i, scheme in enumerate(here):
                self._draw_bar(axis, cell, scheme, start + i * width, width, quiet=none_fits)
            ends = x - 0.46, x + 0.46
            ideal = cell.ideal(self.metric)
            if ideal and any(map(cell.fits, cell.rows)):
                dashed: dict[str, Any] = {"color": "black", "linewidth": 0.8, "linestyle": (0, (4, 2))}
                axis.hlines(ideal, *ends, label="ideal: no exchange" if x == 0 else "", **dashed)
            if self.metric == SPEED and (auto := auto_of(cell)) is not None:
                axis.hlines(cell.value(auto, SPEED), *ends, color=COLOUR, linewidth=1.1, label=LABEL)
        axis.set_xticks(range(len(part)), [self.at(cell)[1] for cell in part])
        axis.set_xlabel(self.varied)
        axis.grid(axis="y")
        axis.set_title(title, loc="left", fontweight="bold", pad=14)
        said = TIMES.get(part[0].calibration, part[0].how)
        axis.annotate(said, (0, 1), (0, 4), "axes fraction", textcoords="offset points", fontsize=6.5)

    def _draw_bar(self, axis: Axes, cell: Cell, scheme: str, at: float, width: float, *, quiet: bool) -> None:
        height = cell.value(scheme, self.metric) if cell.fits(scheme) else 0.0
        own = scheme == OWN[-1]
        axis.bar(
            at,
            height,
            0.9 * width,
            color=scheme_colour(cell.rows[scheme].case.scheme),
            label=scheme_name(scheme),
            edgecolor="black" if own else "white",
            linewidth=0.7 if own else 0,
        )
        marks = "*" * cell.extrapolated(scheme) + "d" * bool(cell.sent(scheme))
        if height and marks:  # inside of the bar, where the line of the ideal is not
            place: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": "top"}
            axis.annotate(marks, (at, height), (0, -1), **place, fontsize=6, color="white", fontweight="bold")
        if not height and not quiet:
            axis.annotate("x", (at, 0), (0, 1), textcoords="offset points", ha="center", va="bottom", fontsize=6)
        if (printed := self.paper(cell, scheme)) is not None:
            axis.plot([at], [printed], "D", color="black", markersize=4, fillstyle="none", label="printed in the paper")


def judge_cells(figure: Figure, rows: Sequence[Row]) -> list[Verdict]:
    """Return the verdicts of the simulated rows on the claims about the figure."""
    return judged(figure.name, rows)


def _gains(cell: Cell) -> list[tuple[float, str]]:
    others = (label for label, row in cell.rows.items() if row.case.scheme not in (DENSE_BASELINE, AUTO))
    return [(gain, label) for label in others if (gain := against_dense(cell, label)) is not None]


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
            places,
            width,
            0.72,
            left=left,
            label=label,
            color=colour,
            hatch=ORIGIN_HATCHES[panel.kind],
            edgecolor="white",
            linewidth=0,
        )
        left = [a + b for a, b in zip(left, width, strict=True)]
        if name == "sparsify_s":
            compute_end = left
    hidden = [line["hidden_comm_s"] * 1e3 for line in table]
    start = [max(0.0, end - width) for end, width in zip(compute_end, hidden, strict=True)]
    axis.barh(
        [y + 0.24 for y in places],
        hidden,
        0.24,
        left=start,
        label="hidden communication",
        color="white",
        hatch="//////",
        edgecolor=HIDDEN_COLOUR,
        linewidth=0.5,
    )
    for y, rows in enumerate(panel.bars.values()):
        if rows[0].case.scheme == AUTO:
            mark_bar(axis, y, left[y], 0.72, horizontal=True)
    iteration = [line["iteration_s"] * 1e3 for line in table]
    axis.scatter(iteration, places, marker="|", color="black", s=60, linewidth=1, label="iteration time")
    if ideal_s := table[0]["ideal_iteration_s"]:
        axis.axvline(ideal_s * 1e3, color="black", linewidth=0.8, linestyle=(0, (4, 2)))
    axis.set_xlim(0, max(left + iteration) * 1.05)
