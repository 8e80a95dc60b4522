"""Curves of small training runs: medians over seeds with the range between them, and orders that exceed the noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import sqrt
from pathlib import Path
from statistics import fmean, median, variance
from typing import TYPE_CHECKING, Any

from experiments.common.claims.verdicts import Outcome, Verdict
from experiments.common.figures.auto import LABEL, budget_said
from experiments.common.figures.style import COLUMN_IN, ORIGIN_LINE, caption_text, save, style
from ssfx.core.rows import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SCALE = "small networks on a CPU, not the paper's"
NOISE = 2.0
"""Standard errors of a difference of means below which two methods count as equal."""

Curve = Mapping[str, Sequence[float | None]]
Panels = Mapping[str, Mapping[str, Sequence[Row]]]


def curve(row: Row) -> Curve:
    """Return the curve of a row by column; empty for rows without one."""
    found: Curve = getattr(row, "curve", {}) or {}
    return found


def quality(row: Row) -> str:
    """Return the column of a row's curve that measures quality on held-out data, "" if none does."""
    return next((name for name in ("top1", "f1", "exact_match", "perplexity") if name in curve(row)), "")


def grouped(rows: Sequence[Row], label: Callable[[Row], str]) -> dict[str, dict[str, list[Row]]]:
    """Return model -> method -> rows of all seeds; rows whose label is "" are left out."""
    found: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        if name := label(row):
            found.setdefault(row.case.model, {}).setdefault(name, []).append(row)
    return found


def values(rows: Sequence[Row], metric: str) -> list[float]:
    """Return a metric of every row that has it."""
    return [float(value) for row in rows if (value := row.metrics.get(metric)) is not None]


def compared(one: Sequence[float], other: Sequence[float]) -> tuple[str, str]:
    """Return "above", "equal" or "below" for the first set of runs, and the difference of means with its error.

    A set of one run has no spread, so nothing can be said: "unknown".
    """
    if len(one) < 2 or len(other) < 2:
        return "unknown", f"{len(one)} and {len(other)} runs"
    difference = fmean(one) - fmean(other)
    error = sqrt(variance(one) / len(one) + variance(other) / len(other))
    word = "equal" if abs(difference) <= NOISE * error else "above" if difference > 0 else "below"
    return word, f"{difference:+.3g} +- {error:.2g} over {min(len(one), len(other))} seeds"


def draw_curves(
    name: str, panels: Panels, colours: Mapping[str, str], column: str | Callable[[Row], str],
    out: Path, *, x: str = "step", labels: tuple[str, str] = ("step", ""), paper: Mapping[str, float] | None = None,
) -> list[Path]:  # fmt: skip
    """Write one panel a model: the median over seeds of a column of the curves, and the range of the seeds as a band.

    `paper` draws a dashed line across a panel. Nothing is written where no row has the column.
    """
    found = {
        title: {label: points for label, own in methods.items() if (points := _points(own, column, x))}
        for title, methods in panels.items()
    }
    found = {title: methods for title, methods in found.items() if methods}
    if not found:
        return []
    import matplotlib.pyplot as plt

    table: list[dict[str, Any]] = []
    columns = min(2, len(found))
    lines = -(-len(found) // columns)
    with style():
        size_in = (COLUMN_IN * max(columns, 1.7), 2.1 * lines + 0.6)
        figure, grid = plt.subplots(lines, columns, figsize=size_in, squeeze=False, layout="constrained")
        axes: list[Axes] = list(grid.flat)
        for spare in axes[len(found) :]:
            spare.remove()
        keys: dict[str, Any] = {}
        for (title, methods), axis in zip(found.items(), axes, strict=False):
            for label, points in methods.items():
                at = [point[0] for point in points]
                low, middle, high = ([point[i] for point in points] for i in (1, 2, 3))
                colour = colours.get(label, "#9a9a9a")
                dashes: Any = (0, (4, 1.2)) if label == LABEL else "-"
                (keys[label],) = axis.plot(at, middle, color=colour, linewidth=1.2, linestyle=dashes)
                axis.fill_between(at, low, high, color=colour, alpha=0.2, linewidth=0)
                table += [
                    {"panel": title, "method": label, "x": a, "low": b, "median": c, "high": d} for a, b, c, d in points
                ]
            if paper and title in paper:
                keys["set density" if "density" in labels[1] else "paper"] = axis.axhline(
                    paper[title], color="black", linewidth=0.8, linestyle=(0, (4, 2))
                )
            axis.set_title(title, loc="left", fontweight="bold")
            axis.set_xlabel(labels[0])
            axis.set_ylabel(labels[1] or _word(column, panels[title]))
            axis.grid()
        figure.legend(keys.values(), keys.keys(), loc="outside upper center", ncols=4, columnspacing=1.2)
        drawn = [row for methods in panels.values() for own in methods.values() for row in own]
        said = caption_text([origin(drawn), *budget_said(drawn)], figure.get_figwidth())
        figure.supxlabel(said, x=0.01, ha="left", **ORIGIN_LINE)
        return save(figure, name, table, drawn, out)


def origin(rows: Sequence[Row]) -> str:
    """Return the line that says where the runs come from."""
    kinds = ", ".join(sorted({f"{row.origin.kind} on {row.origin.hardware}" for row in rows}))
    seeds = len({row.case.seed for row in rows})
    ranks = ", ".join(map(str, sorted({row.case.world_size for row in rows})))
    return f"{kinds[:1].upper()}{kinds[1:]}: {ranks} workers, median and range of {seeds} seeds; {SCALE}."


def _points(rows: Sequence[Row], column: str | Callable[[Row], str], x: str) -> list[tuple[float, float, float, float]]:
    places: dict[int, list[tuple[float, float]]] = {}
    for row in rows:
        name = column(row) if callable(column) else column
        own = curve(row)
        if name in own and x in own:
            for i, (a, b) in enumerate(zip(own[x], own[name], strict=True)):
                if a is not None and b is not None:
                    places.setdefault(i, []).append((a, b))
    return [
        (median(a for a, _ in found), min(b for _, b in found), median(b for _, b in found), max(b for _, b in found))
        for _, found in sorted(places.items())
    ]


def _word(column: str | Callable[[Row], str], methods: Mapping[str, Sequence[Row]]) -> str:
    if not callable(column):
        return column.replace("_", " ")
    words = {column(row) for rows in methods.values() for row in rows} - {""}
    return next(iter(sorted(words)), "").replace("_", " ")


def judged_order(claim: str, pairs: Sequence[tuple[str, str, str, str]]) -> Verdict:
    """Return the verdict on an order from pairs of methods: (what is compared, word, difference, wanted word).

    "equal" is met by differences within the noise; with one seed nothing can be said. One pair that is clearly another
    than wanted contradicts the order; a pair that should differ and does not stand out of the noise leaves it open.
    """
    text = "; ".join(f"{what} {said}" for what, _, said, _ in pairs)
    if any(word == "unknown" for _, word, _, _ in pairs):
        return Verdict(
            claim, "not comparable", text, "measured", reason="too few seeds to tell a difference from noise"
        )
    holds = [word == wanted for _, word, _, wanted in pairs]
    contradicted = any(word not in (wanted, "equal") for _, word, _, wanted in pairs)
    outcome: Outcome = "agrees" if all(holds) else "partly" if any(holds) and not contradicted else "disagrees"
    return Verdict(claim, outcome, text, "measured", reason=f"{SCALE}: {text}")
