"""Tables drawn as pictures: what ssfx works out beside what a paper prints, with the CSV of both."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from experiments.common.figures.figure import Figure
from experiments.common.figures.style import COLUMN_IN, ORIGIN_LINE, OUTCOME_COLOURS, Axes, Picture, Table, plt
from ssfx.core.rows import Row

LINE_IN = 0.13
"""Height of a line of text."""
GAP_IN = 0.06
"""Between the lines of two rows, and twice that between columns."""
WIDEST_CHARACTERS = 44
"""Of a column; longer cells are wrapped."""
NARROW, WIDE = "iljtfr.,:;|!'()[] ", "mwMWGOQ%@"

COMPUTED = "Computed by ssfx from model shapes and formulas; no run."
"""The usual line of origin of a static table."""


@dataclass(frozen=True)
class Tabular:
    """A table: the headings of its columns by key, and its lines, none where the rows do not suffice.

    `origin` may depend on the lines and the rows. `of` chooses the rows that the numbers come from.
    """

    columns: Mapping[str, str]
    lines: Callable[[Figure, list[Row]], Table]
    origin: str | Callable[[Table, list[Row]], str] = COMPUTED
    of: Callable[[list[Row]], list[Row]] = list

    def __call__(self, figure: Figure, rows: list[Row]) -> Picture | None:
        """Return the table."""
        lines = self.lines(figure, rows)
        if not lines:
            return None
        origin = self.origin if isinstance(self.origin, str) else self.origin(lines, rows)
        return draw_table(figure.title, self.columns, lines, origin=origin, used=self.of(rows))


def draw_table(
    title: str, columns: Mapping[str, str], rows: Table, *, origin: str = COMPUTED, used: Sequence[Row] = ()
) -> Picture:
    """Return the table as a picture.

    `columns` maps keys of the rows, in order, to headings. Text stands at the left, numbers at
    the right; a column whose heading begins with "paper" is set in grey, and a cell that is the outcome of a verdict in
    its colour. The CSV has all keys of the rows, shown or not. `origin` is the one line below; `used` are the rows of
    runs that the numbers come from, none where they are computed.
    """
    cells = [[wrap(_text(row.get(key, "")), WIDEST_CHARACTERS) or [""] for key in columns] for row in rows]
    head = [heading.split("\n") for heading in columns.values()]
    numeric = [
        all(isinstance(row.get(key, ""), int | float) or row.get(key, "") in ("", None) for row in rows)
        for key in columns
    ]
    widths = [
        max(_width_in(line, bold=number == 0) for number, cell in enumerate(column) for line in cell)
        for column in zip(head, *cells, strict=True)
    ]
    lines = [max(map(len, head)), *(max(map(len, row)) for row in cells)]
    width_in = max(
        sum(widths) + 2 * GAP_IN * (len(widths) + 1), 0.8 * COLUMN_IN, 0.3 + _width_in(title, bold=True) * 8 / 6.5
    )
    heights = [LINE_IN * count + 2 * GAP_IN for count in lines]
    below = wrap(origin, int(width_in / _width_in("n") * 0.95))
    height_in = 0.32 + sum(heights) + 0.1 + LINE_IN * len(below)
    figure = plt.figure(figsize=(width_in, height_in))
    axis = figure.add_axes((0, 0, 1, 1))
    axis.set(xlim=(0, width_in), ylim=(height_in, 0))
    axis.set_axis_off()
    axis.text(2 * GAP_IN, 0.1, title, fontweight="bold", fontsize=8, va="top")
    top = 0.32
    spread = (width_in - sum(widths) - 4 * GAP_IN) / max(1, len(widths) - 1)
    for number, (row, height) in enumerate(zip([head, *cells], heights, strict=True)):
        if number and number % 2 == 0:
            axis.fill_between([GAP_IN, width_in - GAP_IN], top, top + height, color="#f4f4f4", linewidth=0)
        left = 2 * GAP_IN
        for cell, heading, width, right in zip(row, columns.values(), widths, numeric, strict=True):
            _draw_cell(axis, cell, left + width * right, top, number == 0, heading, right)
            left += width + spread
        top += height
        if number == 0:
            axis.plot([GAP_IN, width_in - GAP_IN], [top, top], color="black", linewidth=0.8)
    axis.plot([GAP_IN, width_in - GAP_IN], [top, top], color="black", linewidth=0.8)
    axis.text(2 * GAP_IN, top + 0.08, "\n".join(below), va="top", **ORIGIN_LINE)
    return figure, rows, used


def _draw_cell(axis: Axes, cell: list[str], x: float, top: float, head: bool, heading: str, right: bool) -> None:
    look: dict[str, Any] = {"fontsize": 6.5, "va": "baseline", "ha": "right" if right else "left"}
    outcome = " ".join(cell)
    if head:
        look["fontweight"] = "bold"
    elif outcome in OUTCOME_COLOURS:
        look["color"] = OUTCOME_COLOURS[outcome]
    elif heading.lower().startswith("paper"):
        look["color"] = "#555555"
    for number, line in enumerate(cell):
        axis.text(x, top + GAP_IN + LINE_IN * (number + 0.75), line, **look)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)


def _width_in(text: str, *, bold: bool = False) -> float:
    """Return about how wide a line is at the size of cells; drawing would tell, but only once the figure has a size."""
    units = sum(0.36 if c in NARROW else 0.9 if c in WIDE else 0.66 if c.isupper() else 0.61 for c in text)
    return units * 6.5 / 72 * (1.12 if bold else 1.0)
