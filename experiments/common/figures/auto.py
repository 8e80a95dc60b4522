"""scheme=auto beside a paper's schemes: never one of them, in a colour of its own, and with its budget in words."""

from collections.abc import Iterable
from typing import Any

from experiments.common.figures.style import Axes, scheme_colour
from ssfx.core.rows import Row
from ssfx.lab.results.comparisons import Cell

AUTO = "auto"
LABEL = "scheme=auto"
COLOUR = scheme_colour(AUTO)

_FIRST = "Red, scheme=auto, is not of the paper and in no claim: for each bucket the fastest exchange"
BY_QUALITY = (
    f"{_FIRST} among those that needed at most 5 % more steps than dense training in the recorded runs "
    "(quality=normal), which no other method here promises."
)
AT_DENSITY = (
    f"{_FIRST} of any kind, 16 bits and low rank too, whatever it costs in steps; what selects elements keeps the same "
    "density as the methods beside it."
)
SAME_COMPRESSOR = (
    f"{_FIRST} with the compressor of the methods beside it, never over several tensors at once, or dense."
)
NO_PRINTED_TIMES = "Papers print no times for most of what it chooses from, so it is not beside such times."


def budget_said(rows: Iterable[Row]) -> list[str]:
    """Return a caption line that names the budget of the rows of scheme=auto; none without such rows."""
    given = set()
    for case in (row.case for row in rows if row.case.scheme == AUTO):
        quality = case.scheme_options.get("quality")
        own = {"density": case.density, "compressor": case.compressor, "quality": quality}
        words = " ".join(f"{key}={value}" for key, value in own.items() if value is not None)
        given.add(words or "quality=normal")
    return [f"{_FIRST} that its budget allows ({', '.join(sorted(given))})."] if given else []


def auto_of(cell: Cell) -> str | None:
    """Return the label of the row of scheme=auto that a figure may show; None without one, or if it does not fit.

    None also where compressors have the times that papers print, unless it has the compressor of the others: most
    methods that it chooses from have no such times.
    """
    label = next((label for label, row in cell.rows.items() if row.case.scheme == AUTO and cell.fits(label)), None)
    if label is None or (cell.calibration == "published" and cell.rows[label].case.compressor is None):
        return None
    return label


def mark_bar(axis: Axes, at: float, length: float, width: float, *, horizontal: bool = False) -> None:
    """Frame a stacked bar in the colour of auto, a little beyond its parts, whose colours say what they are."""
    look: dict[str, Any] = {"color": "none", "edgecolor": COLOUR, "linewidth": 0.9, "zorder": 3}
    if horizontal:
        axis.barh([at], [1.015 * length], width + 0.18, **look)
    else:
        axis.bar([at], [1.025 * length], width + 0.14, **look)


def say_absent(axis: Axes, at: float) -> None:
    """Write in the line of auto why it has no value; see auto_of."""
    look: dict[str, Any] = {"va": "center", "fontsize": 5.8, "color": "#666666"}
    axis.annotate(
        "not shown: most of what it sends has no printed times", (0.02, at), xycoords=("axes fraction", "data"), **look
    )


def narrow(name: str) -> str:
    """Return the name of a method for below its bar: that of auto on two lines."""
    return name.replace("=", "=\n") if name == LABEL else name


def mark_names(axis: Axes) -> None:
    """Set the name of auto on an axis of methods in its colour; called once the names are set."""
    for name in (*axis.get_xticklabels(), *axis.get_yticklabels()):
        if LABEL in name.get_text().replace("=\n", "="):
            name.set_color(COLOUR)
