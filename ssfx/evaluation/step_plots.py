"""Bars, lines and stacked parts of simulated steps, by calibration, with what the paper prints as open marks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ssfx.figures.style import COLUMN_IN, ORIGIN_LINE, save, style
from ssfx.results.rows import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CALIBRATIONS = ("nominal", "published")
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
    """One panel of bars; `notes` are columns of its lines in the CSV."""

    title: str
    bars: Sequence[Bar]
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Line:
    """One method over x, by calibration, with the paper's points where it prints some."""

    label: str
    colour: str
    points: Mapping[str, Sequence[tuple[float, float]]]
    paper: Sequence[tuple[float, float]] = ()


def draw_bars(
    name: str, panels: Sequence[Bars], ylabel: str, rows: Sequence[Row], out: Path, *, line_at: float | None = None,
    logarithmic: bool = False,
) -> list[Path]:  # fmt: skip
    """Write one panel each: two bars a method, hatched for nominal times; nothing where no bar has a value."""
    drawn = [panel for panel in panels if any(bar.values for bar in panel.bars)]
    if not drawn:
        return []
    table = []
    with style():
        figure, axes = _grid(len(drawn), max(len(panel.bars) for panel in drawn))
        for panel, axis in zip(drawn, axes, strict=False):
            for x, bar in enumerate(panel.bars):
                for place, calibration in zip((-0.2, 0.2), CALIBRATIONS, strict=True):
                    if calibration in bar.values:
                        axis.bar(
                            x + place, bar.values[calibration], 0.37, color=bar.colour, hatch=HATCHES[calibration],
                            edgecolor="white", linewidth=0,
                        )  # fmt: skip
                if bar.paper is not None:
                    axis.plot([x] * len(set(bar.paper)), sorted(set(bar.paper)), **PAPER)
                low, high = bar.paper or (None, None)
                table.append(
                    {
                        "panel": panel.title, "method": bar.label.replace("\n", " "), **panel.notes,
                        **{f"simulated_{key}": value for key, value in bar.values.items()},
                        "paper_low": low, "paper_high": high,
                    }
                )  # fmt: skip
            if line_at is not None:
                axis.axhline(line_at, color="black", linewidth=0.7)
            if logarithmic:
                axis.set_yscale("log")
            axis.set_xticks(range(len(panel.bars)), [bar.label for bar in panel.bars])
            axis.set_title(panel.title, loc="left", fontweight="bold")
            axis.grid(axis="y")
        _finish(figure, axes[: len(drawn)], ylabel, rows, _bar_keys(drawn))
        return save(figure, name, table, rows, out)


def draw_lines(
    name: str, panels: Mapping[str, Sequence[Line]], xlabel: str, ylabel: str, rows: Sequence[Row], out: Path, *,
    log_x: bool = False, ticks: Sequence[float] = (),
) -> list[Path]:  # fmt: skip
    """Write one panel each, a line per method and calibration, dashed for nominal times; nothing without points."""
    drawn = {title: lines for title, lines in panels.items() if any(any(line.points.values()) for line in lines)}
    if not drawn:
        return []
    table = []
    with style():
        figure, axes = _grid(len(drawn), 4)
        for (title, lines), axis in zip(drawn.items(), axes, strict=False):
            for line in lines:
                for calibration, points in line.points.items():
                    shown = line.label if calibration == CALIBRATIONS[-1] or len(line.points) == 1 else None
                    if points:
                        axis.plot(
                            *zip(*sorted(points), strict=True), color=line.colour, marker="o", markersize=2.5,
                            linewidth=1.1, linestyle=DASHES[calibration], label=shown,
                        )  # fmt: skip
                    table += [
                        {"panel": title, "method": line.label, "origin": f"simulated ({calibration})", "x": x, "y": y}
                        for x, y in sorted(points)
                    ]
                if line.paper:
                    axis.plot(*zip(*line.paper, strict=True), **{**PAPER, "color": line.colour})
                    table += [
                        {"panel": title, "method": line.label, "origin": "paper", "x": x, "y": y} for x, y in line.paper
                    ]
            if log_x:
                axis.set_xscale("symlog" if any(x == 0 for line in lines for x, _ in _all(line)) else "log", base=2)
            marks = ticks or sorted({x for line in lines for x, _ in _all(line)})
            axis.set_xticks(marks, [f"{mark:g}" for mark in marks])
            axis.minorticks_off()
            axis.set_xlabel(xlabel)
            axis.set_ylim(bottom=0)
            axis.set_title(title, loc="left", fontweight="bold")
            axis.grid()
        handles, labels = axes[0].get_legend_handles_labels()
        _finish(figure, axes[: len(drawn)], ylabel, rows, list(zip(handles, labels, strict=True)), lines=True)
        return save(figure, name, table, rows, out)


def draw_parts(
    name: str, panels: Mapping[str, Mapping[str, Mapping[str, Row]]], rows: Sequence[Row], out: Path
) -> list[Path]:
    """Write stacked parts of an iteration: panel -> method -> calibration -> row; nothing without rows.

    The device's forward, backward, optimizer step and rest are one part, as the papers count them.
    """
    drawn = {title: methods for title, methods in panels.items() if any(methods.values())}
    if not drawn:
        return []
    table = []
    with style():
        figure, axes = _grid(len(drawn), max(map(len, drawn.values())))
        for (title, methods), axis in zip(drawn.items(), axes, strict=False):
            for x, (method, by) in enumerate(methods.items()):
                for calibration, row in by.items():
                    place = x + (dict(zip(CALIBRATIONS, (-0.2, 0.2), strict=True))[calibration] if len(by) > 1 else 0)
                    bottom, line = 0.0, {"panel": title, "method": method.replace("\n", " "), "origin": calibration}
                    for part, seconds in parts_s(row).items():
                        axis.bar(
                            place, 1e3 * seconds, 0.37, bottom=1e3 * bottom, color=PARTS[part][1],
                            hatch=HATCHES[calibration], edgecolor="white", linewidth=0,
                        )  # fmt: skip
                        bottom += seconds
                        line |= {f"{part.removesuffix('_s')}_ms": f"{1e3 * seconds:.6g}"}
                    table.append({**line, "run": row.run_id})
            axis.set_xticks(range(len(methods)), list(methods))
            axis.set_title(title, loc="left", fontweight="bold")
            axis.grid(axis="y")
        from matplotlib.patches import Patch

        keys: list[tuple[Any, str]] = [(Patch(facecolor=colour), label) for label, colour in PARTS.values()]
        hatched = len({calibration for methods in drawn.values() for by in methods.values() for calibration in by}) > 1
        _finish(figure, axes[: len(drawn)], "time (ms)", rows, keys, hatched=hatched)
        return save(figure, name, table, rows, out)


def parts_s(row: Row) -> dict[str, float]:
    """Return the parts of an iteration as the papers count them, in seconds."""
    found = {name: float(row.metrics.get(name) or 0.0) for name in ("sparsify_s", "exposed_comm_s")}
    return {"compute": float(row.metrics["iteration_s"] or 0.0) - sum(found.values()), **found}


def _all(line: Line) -> list[tuple[float, float]]:
    return [point for points in line.points.values() for point in points]


def _grid(panels: int, most: int) -> tuple[Figure, list[Axes]]:
    import matplotlib.pyplot as plt

    columns = 1 if panels == 1 else 2
    lines = -(-panels // columns)
    width_in = 2 * COLUMN_IN if columns == 2 or most > 4 else COLUMN_IN
    figure, grid = plt.subplots(
        lines, columns, figsize=(width_in, 1.9 * lines + 0.55), squeeze=False, layout="constrained"
    )
    axes = list(grid.flat)
    for spare in axes[panels:]:
        spare.remove()
    return figure, axes


def _bar_keys(panels: Sequence[Bars]) -> list[tuple[Any, str]]:
    from matplotlib.lines import Line2D

    return [(Line2D([], [], **PAPER), "paper")] if any(b.paper for panel in panels for b in panel.bars) else []


def _finish(
    figure: Figure, axes: Sequence[Axes], ylabel: str, rows: Sequence[Row], keys: Sequence[tuple[Any, str]], *,
    lines: bool = False, hatched: bool = True,
) -> None:  # fmt: skip
    """Set labels, the legend, and the one line of origin."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    for axis in axes:
        if axis.get_subplotspec() is not None and axis.get_subplotspec().is_first_col():  # type: ignore[union-attr]
            axis.set_ylabel(ylabel)
    found = sorted({row.case.calibration.partition(":")[0] for row in rows})
    names = {"nominal": "simulated, nominal times", "published": "simulated, published times"}
    kinds: list[tuple[Any, str]] = []
    for name in found:
        if lines:
            kinds.append((Line2D([], [], color="#666666", linestyle=DASHES[name]), names[name]))
        elif hatched:
            patch = Patch(facecolor="#999999", hatch=HATCHES[name], edgecolor="white", linewidth=0)
            kinds.append((patch, names[name]))
    every = [*keys, *kinds]
    if lines:
        every.append((Line2D([], [], **{**PAPER, "color": "#666666"}), "paper"))
    figure.legend([key for key, _ in every], [text for _, text in every], loc="outside upper center", ncols=4)
    devices = "; ".join(sorted({row.origin.hardware.partition(" (")[0] for row in rows}))
    clusters = ", ".join(sorted({row.case.cluster.partition("(")[0] for row in rows}))
    what = f"Simulated steps on {devices} ({clusters}); no GPU was used."
    figure.supxlabel(what, x=0.01, ha="left", **ORIGIN_LINE)
