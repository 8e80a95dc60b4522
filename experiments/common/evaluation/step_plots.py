"""Bars, lines and stacked parts of simulated steps, by calibration, with what the paper prints as open marks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.common.figures.auto import LABEL, mark_bar, mark_names, narrow
from experiments.common.figures.figure import Figure
from experiments.common.figures.style import COLUMN_IN, ORIGIN_LINE, Axes, Canvas, Picture, plt, subplots
from ssfx.core.rows import Row

PLACES = {"nominal": -0.2, "published": 0.2}
"""Of the bars of a method that has both calibrations."""
HATCHES = {"nominal": "////", "published": ""}
DASHES = {"nominal": (0, (3, 1.5)), "published": "-"}
PAPER: dict[str, Any] = {"linestyle": "", "marker": "D", "fillstyle": "none", "color": "black", "markersize": 4.5}
PARTS = {
    "compute": ("forward and backward", "#b5b5b5"),
    "sparsify_s": ("compression", "#e69f00"),
    "exposed_comm_s": ("communication not hidden", "#0072b2"),
}


@dataclass(frozen=True)
class Bar:
    """One method: its value by calibration, and the paper's, which may be a range, where it prints one."""

    label: str
    colour: str
    values: Mapping[str, float]
    paper: tuple[float, float] | None = None


@dataclass(frozen=True)
class Bars:
    """One panel of bars; `line_at` draws a line across, as at 1 for ratios."""

    title: str
    bars: Sequence[Bar]
    ylabel: str
    line_at: float | None = None
    logarithmic: bool = False

    @property
    def filled(self) -> bool:
        """True when some bar has a value."""
        return any(bar.values for bar in self.bars)


@dataclass(frozen=True)
class Line:
    """One method over x, by calibration."""

    label: str
    colour: str
    points: Mapping[str, Sequence[tuple[float, float]]]


@dataclass(frozen=True)
class Lines:
    """One panel of lines over a logarithmic x."""

    title: str
    lines: Sequence[Line]
    xlabel: str
    ylabel: str
    ticks: Sequence[float] = ()

    @property
    def filled(self) -> bool:
        """True when some line has a point."""
        return any(any(line.points.values()) for line in self.lines)


@dataclass(frozen=True)
class Panels:
    """Panels that have a value, two a row: bars, hatched for nominal times, or lines, dashed for them.

    `of` chooses the rows that the line of origin names.
    """

    panels: Callable[[list[Row]], Sequence[Bars | Lines]]
    of: Callable[[list[Row]], list[Row]] = list

    def __call__(self, what: Figure, rows: list[Row]) -> Picture | None:
        """Return the panels; None where none has a value."""
        drawn = [panel for panel in self.panels(rows) if panel.filled]
        if not drawn:
            return None
        table: list[dict[str, Any]] = []
        figure, axes = _grid(len(drawn), max(len(panel.bars) if isinstance(panel, Bars) else 4 for panel in drawn))
        keys: dict[str, Any] = {}
        for panel, axis in zip(drawn, axes, strict=False):
            table += _bars(panel, axis, keys) if isinstance(panel, Bars) else _lines(panel, axis, keys)
            axis.set_title(panel.title, loc="left", fontweight="bold")
            axis.set_ylabel(panel.ylabel)
        _finish(figure, self.of(rows), keys, drawn)
        return figure, table, self.of(rows)


def _bars(panel: Bars, axis: Axes, keys: dict[str, Any]) -> list[dict[str, Any]]:
    table = []
    bars = [bar for bar in panel.bars if bar.values or bar.paper]
    for x, bar in enumerate(bars):
        for calibration, place in PLACES.items():
            if calibration in bar.values:
                axis.bar(
                    x + place * (len(bar.values) > 1),
                    bar.values[calibration],
                    0.37,
                    color=bar.colour,
                    hatch=HATCHES[calibration],
                    edgecolor="white",
                    linewidth=0,
                )
        if bar.paper is not None:
            axis.plot([x] * len(set(bar.paper)), sorted(set(bar.paper)), **PAPER)
            keys["paper"] = plt.Line2D([], [], **PAPER)
        low, high = bar.paper or (None, None)
        values = {f"simulated_{key}": value for key, value in bar.values.items()}
        label = bar.label.replace("\n", " ")
        table.append({"panel": panel.title, "method": label, **values, "paper_low": low, "paper_high": high})
    if panel.line_at is not None:
        axis.axhline(panel.line_at, color="black", linewidth=0.7)
    if panel.logarithmic:
        axis.set_yscale("log")
    axis.set_xticks(range(len(bars)), [narrow(bar.label) for bar in bars])
    mark_names(axis)
    axis.grid(axis="y")
    return table


def _lines(panel: Lines, axis: Axes, keys: dict[str, Any]) -> list[dict[str, Any]]:
    table: list[dict[str, Any]] = []
    for line in (line for line in panel.lines if any(line.points.values())):
        keys[line.label] = plt.Line2D([], [], color=line.colour, marker="o", markersize=2.5)
        for calibration, points in line.points.items():
            if points:
                axis.plot(
                    *zip(*sorted(points), strict=True),
                    color=line.colour,
                    marker="o",
                    markersize=2.5,
                    linewidth=1.1,
                    linestyle=DASHES[calibration],
                )
            origin = f"simulated ({calibration})"
            table += [
                {"panel": panel.title, "method": line.label, "origin": origin, "x": x, "y": y}
                for x, y in sorted(points)
            ]
    xs = sorted({x for line in panel.lines for found in line.points.values() for x, _ in found})
    axis.set_xscale("symlog" if 0 in xs else "log", base=2)
    marks = panel.ticks or xs
    axis.set_xticks(marks, [f"{mark:g}" for mark in marks])
    axis.minorticks_off()
    axis.set_xlabel(panel.xlabel)
    axis.set_ylim(bottom=0)
    axis.grid()
    return table


@dataclass(frozen=True)
class Parts:
    """Stacked parts of an iteration: panel -> method -> calibration -> row.

    The device's forward, backward, optimizer step and rest are one part, as the papers count them.
    """

    parts: Callable[[list[Row]], Mapping[str, Mapping[str, Mapping[str, Row]]]]

    def __call__(self, what: Figure, rows: list[Row]) -> Picture | None:
        """Return a panel of stacked bars for each; None without rows."""
        rows = [row for row in rows if row.origin.kind == "simulated"]
        known = {
            title: {method: by for method, by in methods.items() if by} for title, methods in self.parts(rows).items()
        }
        drawn = {title: methods for title, methods in known.items() if methods}
        if not drawn:
            return None
        table = []
        figure, axes = _grid(len(drawn), max(map(len, drawn.values())))
        for (title, methods), axis in zip(drawn.items(), axes, strict=False):
            for x, (method, by) in enumerate(methods.items()):
                for calibration, row in by.items():
                    place = x + PLACES[calibration] * (len(by) > 1)
                    bottom, line = 0.0, {"panel": title, "method": method.replace("\n", " "), "origin": calibration}
                    for part, seconds in parts_s(row).items():
                        axis.bar(
                            place,
                            1e3 * seconds,
                            0.37,
                            bottom=1e3 * bottom,
                            color=PARTS[part][1],
                            hatch=HATCHES[calibration],
                            edgecolor="white",
                            linewidth=0,
                        )
                        bottom += seconds
                        line |= {f"{part.removesuffix('_s')}_ms": f"{1e3 * seconds:.6g}"}
                    if method == LABEL:
                        mark_bar(axis, place, 1e3 * bottom, 0.37)
                    table.append({**line, "run": row.run_id})
            axis.set_xticks(range(len(methods)), list(map(narrow, methods)))
            mark_names(axis)
            axis.set_title(title, loc="left", fontweight="bold")
            axis.set_ylabel("iteration (ms)")
            axis.grid(axis="y")
        from matplotlib.patches import Patch

        keys = {label: Patch(facecolor=colour) for label, colour in PARTS.values()}
        _finish(figure, rows, keys, hatched=len({line["origin"] for line in table}) > 1)
        return figure, table, rows


def parts_s(row: Row) -> dict[str, float]:
    """Return the parts of an iteration as the papers count them, in seconds."""
    found = {name: float(row.metrics.get(name) or 0.0) for name in ("sparsify_s", "exposed_comm_s")}
    return {"compute": float(row.metrics["iteration_s"] or 0.0) - sum(found.values()), **found}


def _grid(panels: int, most: int) -> tuple[Canvas, list[Axes]]:
    columns = 1 if panels == 1 else 2
    lines = -(-panels // columns)
    width_in = 2 * COLUMN_IN if columns == 2 or most > 4 else 1.7 * COLUMN_IN  # the legend has to fit
    figure, grid = subplots(lines, columns, figsize=(width_in, 1.9 * lines + 0.55))
    axes = list(grid.flat)
    for spare in axes[panels:]:
        spare.remove()
    return figure, axes


def _finish(
    figure: Canvas,
    rows: Sequence[Row],
    keys: Mapping[str, Any],
    drawn: Sequence[Bars | Lines] = (),
    *,
    hatched: bool = True,
) -> None:
    """Set the legend and the one line of origin."""
    from matplotlib.patches import Patch

    names = {"nominal": "simulated, nominal times", "published": "simulated, published times"}
    every = dict(keys)
    for name in sorted({row.case.costs for row in rows}):
        if any(isinstance(panel, Lines) for panel in drawn):
            every[names[name]] = plt.Line2D([], [], color="#666666", linestyle=DASHES[name])
        elif hatched:
            every[names[name]] = Patch(facecolor="#999999", hatch=HATCHES[name], edgecolor="white", linewidth=0)
    figure.legend(every.values(), every.keys(), loc="outside upper center", ncols=4, columnspacing=1.2)
    devices = "; ".join(sorted({row.origin.hardware.partition(" (")[0] for row in rows}))
    clusters = ", ".join(sorted({row.case.cluster.name for row in rows}))
    what = f"Simulated steps on {devices} ({clusters}); no GPU was used. Nothing was fitted to the marks of the paper."
    figure.supxlabel(what, x=0.01, ha="left", **ORIGIN_LINE)
