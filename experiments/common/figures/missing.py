"""The picture of a figure that has no rows yet: what it would show, and the command that makes them."""

from __future__ import annotations

from pathlib import Path
from textwrap import wrap

from experiments.common.figures.style import COLUMN_IN, ORIGIN_LINE, save, style

CHARACTERS = 62
"""Of a line in the picture."""


def draw_missing(name: str, title: str, command: str, out: Path) -> list[Path]:
    """Write a small picture that says that the figure is missing, with the command, as out/name.{png,pdf,svg,csv}."""
    import matplotlib.pyplot as plt

    said = [*wrap(f"{title[0].upper()}{title[1:]}", CHARACTERS - 8), "", *wrap(command, CHARACTERS)]
    with style():
        figure = plt.figure(figsize=(COLUMN_IN, 0.55 + 0.13 * len(said)))
        figure.text(
            0.04, 1 - 0.1 / figure.get_figheight(), f"{name}: missing, no rows yet", fontweight="bold", va="top"
        )
        head = len(wrap(f"{title[0].upper()}{title[1:]}", CHARACTERS - 8))
        figure.text(0.04, 1 - 0.27 / figure.get_figheight(), "\n".join(said[:head]), va="top", linespacing=1.35)
        figure.text(
            0.04, 1 - (0.4 + 0.13 * head) / figure.get_figheight(), "\n".join(said[head + 1 :]), va="top",
            family="monospace", fontsize=6, linespacing=1.35,
        )  # fmt: skip
        figure.text(0.04, 0.06, "Nothing was run for it, so nothing is shown.", **ORIGIN_LINE)
        return save(figure, name, [{"figure": name, "state": "missing", "command": command}], [], out)
