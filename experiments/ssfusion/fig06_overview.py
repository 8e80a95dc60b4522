"""SSFusion Fig. 6: the parts of the framework, each with the module of ssfx that does it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from experiments.common.figures.style import COLUMN_IN, ORIGIN_LINE, save, style
from ssfx.core.rows import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "ssfusion.fig6"
TITLE = "Fig. 6: overview of SSFusion, and where its parts are in ssfx"

SEARCH = "ssfx/schemes/search"
GREY = "#e3e3e3"
PARTS = (
    ("Profiling", "backward time per tensor,\ncosts of compressors and links", "ssfx/{runtime,calibration}", GREY),
    ("Fusion buffers", "contiguous groups of\nshortest predicted step", f"{SEARCH}/exact_groups.py", GREY),
    (
        "Selective sparsification", "small tensors stay dense,\nlarge ones get a lower density",
        f"{SEARCH}/ssfusion_selection.py", "#bfe0f5",
    ),
    ("SSFusion-O", "large tensors are compressed\non the host", f"{SEARCH}/ssfusion_selection.py", "#8cc8ee"),
    ("SSFusion-I", "All-Reduce of dense tensors\nbetween All-Gathers", f"{SEARCH}/ssfusion_buffers.py", "#56b4e9"),
    ("Training", "the plan, executed step by step\n(or simulated)", "ssfx/{runtime,simulator}", GREY),
)  # fmt: skip
"""What a part is called in the paper, what it does, where it is here, and its colour."""


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write the parts as boxes in the order in which they work."""
    import matplotlib.pyplot as plt

    with style():
        figure = plt.figure(figsize=(2 * COLUMN_IN, 2.5))
        axis = figure.add_axes((0, 0, 1, 1))
        axis.set_axis_off()
        axis.set_xlim(0, 3)
        axis.set_ylim(2.5, 0)
        axis.text(0.03, 0.12, TITLE, fontweight="bold", fontsize=8, va="center")
        for number, part in enumerate(PARTS):
            _draw_part(axis, number, part)
        axis.text(
            0.03,
            2.42,
            "A diagram: nothing is measured. Arrows: what works on the outcome of what.",
            va="center",
            **ORIGIN_LINE,
        )
        table = [{"part": name, "does": does.replace("\n", " "), "module": module} for name, does, module, _ in PARTS]
        return save(figure, NAME, table, [], out)


def finding(rows: list[Row]) -> str:
    """Return the order of the parts."""
    return f"in this order: {', '.join(name for name, *_ in PARTS)}"


def _draw_part(axis: Axes, number: int, part: tuple[str, str, str, str]) -> None:
    from matplotlib.patches import FancyBboxPatch

    name, does, module, colour = part
    column, line = number % 3, number // 3
    left, top = column + 0.05, 0.3 + 1.05 * line
    box = FancyBboxPatch(
        (left, top), 0.82, 0.8, boxstyle="round,pad=0.01,rounding_size=0.03", facecolor=colour, linewidth=0
    )
    axis.add_patch(box)
    middle = left + 0.41
    axis.text(middle, top + 0.17, name, ha="center", va="center", fontweight="bold", fontsize=7.5)
    axis.text(middle, top + 0.42, does, ha="center", va="center", fontsize=6.5, linespacing=1.3)
    axis.text(middle, top + 0.69, module, ha="center", va="center", fontsize=5.2, family="monospace", color="#444444")
    look = {"arrowstyle": "-|>", "color": "#333333", "linewidth": 1}
    if column < 2:
        axis.annotate("", (left + 0.99, top + 0.4), (left + 0.84, top + 0.4), arrowprops=look)
    elif line == 0:
        axis.annotate("", (0.46, top + 1.03), (left + 0.41, top + 0.83), arrowprops=look)
