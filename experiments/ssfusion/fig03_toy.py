"""SSFusion Fig. 3: two tensors of four elements, each compressed on its own, and both together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from experiments.common.claims.verdicts import Verdict, compared
from experiments.common.figures.style import COLUMN_IN, ORIGIN_LINE, save, style
from ssfx.core.rows import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "ssfusion.fig3"
TITLE = "Fig. 3: a small tensor vanishes where tensors are compressed together"
COMMAND = "ssfx figures ssfusion.fig3"

TENSORS = {"G2": (0.9, 0.5, 0.7, 0.8), "G1": (0.2, 0.4, 0.1, 0.3)}
"""Magnitudes, invented: every element of G2 is larger than any of G1."""
DENSITY = 0.25
COLOURS = {"G2": "#0072b2", "G1": "#d55e00"}
PANELS = ("(a) Per-tensor sparsification", "(b) Multi-tensor sparsification")
ORIGIN = "Computed: the largest 25 % of the elements, of each tensor or of both; magnitudes are invented."


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write both panels: what is kept is filled, what is not sent is open."""
    import matplotlib.pyplot as plt

    with style():
        figure, grid = plt.subplots(1, 2, figsize=(2 * COLUMN_IN, 2.1), sharey=True, layout="constrained")
        figure.suptitle(TITLE, x=0.01, ha="left", fontweight="bold", fontsize=8)
        for title, kept, axis in zip(PANELS, (per_tensor(), joint()), grid, strict=True):
            _draw(axis, title, kept)
        grid[0].set_ylabel("magnitude")
        figure.supxlabel(ORIGIN, x=0.01, ha="left", **ORIGIN_LINE)
        table = [
            {
                "tensor": name,
                "element": i,
                "magnitude": value,
                "per_tensor": "sent" if (name, i) in per_tensor() else "",
                "multi_tensor": "sent" if (name, i) in joint() else "",
            }
            for name, values in TENSORS.items()
            for i, value in enumerate(values)
        ]
        return save(figure, NAME, table, [], out)


def finding(rows: list[Row]) -> str:
    """Return how many elements of each tensor are kept."""
    return f"elements kept of G2 and G1: {_counts(per_tensor())} each on its own, {_counts(joint())} together"


def judge(rows: list[Row]) -> list[Verdict]:
    """Return verdicts on the toy and on what is kept of it."""
    least = min(sum(name == other for other, _ in per_tensor()) for name in TENSORS)
    left = sum(name == "G1" for name, _ in joint())
    elements = sum(map(len, TENSORS.values()))
    return [
        compared("ssfusion.fig3.elements", 8, elements, decimals=0, command=COMMAND),
        compared("ssfusion.fig3.density", 0.25, DENSITY, decimals=2, command=COMMAND),
        compared("ssfusion.fig3.per", 1, least, decimals=0, source="restated", command=COMMAND),
        compared("ssfusion.fig3.multi", 0, left, decimals=0, source="restated", command=COMMAND),
    ]


def per_tensor() -> set[tuple[str, int]]:
    """Return (tensor, position) of the elements kept when each tensor is compressed on its own."""
    return {kept for name in TENSORS for kept in _largest([name])}


def joint() -> set[tuple[str, int]]:
    """Return the same when both are compressed together."""
    return _largest(list(TENSORS))


def _largest(names: list[str]) -> set[tuple[str, int]]:
    elements = [(value, name, i) for name in names for i, value in enumerate(TENSORS[name])]
    count = round(DENSITY * len(elements))
    return {(name, i) for _, name, i in sorted(elements, reverse=True)[:count]}


def _counts(kept: set[tuple[str, int]]) -> str:
    return " and ".join(str(sum(name == other for other, _ in kept)) for name in TENSORS)


def _draw(axis: Axes, title: str, kept: set[tuple[str, int]]) -> None:
    place = 0
    for name, values in TENSORS.items():
        for i, value in enumerate(values):
            full = (name, i) in kept
            colour = COLOURS[name]
            axis.bar(place, value, 0.8, color=colour if full else "white", edgecolor=colour, linewidth=1)
            if full:
                axis.text(place, value + 0.02, "sent", ha="center", va="bottom", fontsize=6.5)
            place += 1
        place += 1
    missing = [name for name in TENSORS if not any(name == other for other, _ in kept)]
    axis.set_xticks([1.5, 6.5], [f"{name}\n(nothing is sent)" if name in missing else name for name in TENSORS])
    axis.set_ylim(0, 1.05)
    axis.set_title(title, loc="left")
