"""Curves of training runs: medians over seeds of what was recorded along the way, and the range between them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from experiments.common.figures.figure import Figure
from experiments.common.figures.style import COLUMN_IN, ORIGIN_LINE, Axes, Picture, caption_text, plt
from ssfx.core.rows import Row

SCALE = "small networks on a CPU, not the paper's"
NO_ROW = "no long row"
"""Said of a method that no long run has: a short one is no substitute."""

Curve = Mapping[str, Sequence[float | None]]
Methods = Mapping[str, Sequence[Row]]
Point = tuple[float, float, float, float]


def curve(row: Row) -> Curve:
    """Return the curve of a row by column; empty for rows without one."""
    found: Curve = getattr(row, "curve", {}) or {}
    return found


@dataclass(frozen=True)
class Curves:
    """A column of the curves of long runs: the median over seeds by method, the range of the seeds as a band.

    A method of `colours` without rows is named in the legend as one without; `set_to` draws a dashed line across.
    """

    methods: Callable[[list[Row]], Methods]
    title: Callable[[Methods], str]
    colours: Mapping[str, str]
    column: str
    ylabel: str
    set_to: float | None = None

    def __call__(self, what: Figure, rows: list[Row]) -> Picture | None:
        """Return the curves; None where no row has the column."""
        own = self.methods(rows)
        found = {label: points for label in self.colours if (points := median_points(own.get(label, ()), self.column))}
        if not found:
            return None
        table: list[dict[str, Any]] = []
        figure, axis = plt.subplots(figsize=(1.7 * COLUMN_IN, 2.7), layout="constrained")
        keys: dict[str, Any] = {}
        for label, colour in self.colours.items():
            if label not in found:
                (keys[f"{label}: {NO_ROW}"],) = axis.plot([], [], color=colour, linestyle=":")
                table.append({"method": label, "median": NO_ROW})
                continue
            keys[label] = plot_points(axis, found[label], colour)
            table += [{"method": label, "x": a, "low": b, "median": c, "high": d} for a, b, c, d in found[label]]
        if self.set_to is not None:
            keys["set"] = axis.axhline(self.set_to, color="black", linewidth=0.8, linestyle=(0, (4, 2)))
        axis.set_title(self.title(own), loc="left", fontweight="bold")
        axis.set_xlabel("optimizer steps")
        axis.set_ylabel(self.ylabel)
        axis.grid()
        figure.legend(keys.values(), keys.keys(), loc="outside upper center", ncols=3, columnspacing=1.2)
        drawn = [row for label in found for row in own[label]]
        figure.supxlabel(caption_text([origin(drawn)], figure.get_figwidth()), x=0.01, ha="left", **ORIGIN_LINE)
        return figure, table, drawn


def plot_points(axis: Axes, points: Sequence[Point], colour: str, *, band: bool = True, **look: Any) -> Any:
    """Draw a line through the medians of points and a band between their ends; return the line."""
    at, low, middle, high = ([point[i] for point in points] for i in range(4))
    (line,) = axis.plot(at, middle, color=colour, **{"linewidth": 1.2, **look})
    if band:
        axis.fill_between(at, low, high, color=colour, alpha=0.18, linewidth=0)
    return line


def origin(rows: Sequence[Row], shown: str = "median and range of") -> str:
    """Return the line that says where the runs come from, and what is shown of their seeds."""
    steps = ", ".join(f"{steps:,}" for steps in sorted({row.case.steps for row in rows}))
    seeds = len({row.case.seed for row in rows})
    ranks = ", ".join(map(str, sorted({row.case.world_size for row in rows})))
    return f"{where(rows)}: {steps} steps, {ranks} workers, {shown} {seeds} seeds; {SCALE}."


def where(rows: Sequence[Row]) -> str:
    """Return what the quality of the rows was measured on, as the beginning of a sentence."""
    virtual = "measured on virtual ranks in one process"
    words = "; ".join(
        sorted({virtual if row.case.virtual else f"{row.origin.kind} on {row.origin.hardware}" for row in rows})
    )
    return words[:1].upper() + words[1:]


def median_points(rows: Sequence[Row], column: str) -> list[Point]:
    """Return step, lowest, median and highest value over seeds of a column, at every step where it was recorded."""
    places: dict[float, list[float]] = {}
    for row in rows:
        own = curve(row)
        for step, value in zip(own.get("step", ()), own.get(column, ()), strict=False):
            if step is not None and value is not None:
                places.setdefault(step, []).append(value)
    return [(step, min(found), median(found), max(found)) for step, found in sorted(places.items())]
