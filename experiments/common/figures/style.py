"""One look for all figures, and the one way to write them: image, PDF and the CSV of what is drawn, side by side."""

import csv
import hashlib
import io
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from experiments.common.figures.paper_words import FEW
from ssfx.core.errors import RunError
from ssfx.core.files import of_writing
from ssfx.core.lazy import numpy as np
from ssfx.core.origin import Kind
from ssfx.core.rows import Row
from ssfx.lab.results.comparisons import SCHEME_COLOURS, Panel


class _Pyplot:
    """matplotlib.pyplot, imported when first used: it takes a second, and most commands draw nothing."""

    def __getattr__(self, name: str) -> Any:
        from matplotlib import pyplot

        return getattr(pyplot, name)


plt: Any = _Pyplot()
Axes: TypeAlias = Any
Canvas: TypeAlias = Any
"""matplotlib's axes and figures, in signatures alone."""
Lines = list[dict[str, Any]]
COLUMN_IN = 3.5
"""Width of one column of a two-column paper, in inches."""

DPI = 200
"""Of the PNG files, which have true colours: a palette would merge the colours of small marks."""

CHARACTERS_PER_IN = 21
"""How much caption text fits on an inch."""

ORIGIN_HATCHES: dict[Kind, str] = {
    "measured": "",
    "emulated": "////",
    "simulated": "....",
    "published": "xxxx",
    "fitted": "++",
    "nominal": "----",
}

_STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 7,
    "axes.titlesize": 7.5,
    "axes.labelsize": 7,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "hatch.linewidth": 0.5,
    "legend.fontsize": 6.5,
    "legend.frameon": False,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "ytick.major.size": 0,
    "pdf.fonttype": 42,
    "savefig.dpi": DPI,
    "svg.hashsalt": "ssfx",
}

OUTCOME_COLOURS = {
    "agrees": "#00704a",
    "partly": "#b36b00",
    "within error": "#7a5c00",
    "disagrees": "#b3261e",
    "not comparable": "#666666",
    "not attempted": "#8a8a8a",
}
"""Of the outcomes of a verdict, as text on white."""

ORIGIN_LINE: dict[str, Any] = {"fontsize": 5.8, "color": "#555555", "linespacing": 1.3}
"""How the line of origin is set: where the numbers of an image come from."""

CAPTION: dict[str, Any] = {"x": 0.01, "ha": "left", "fontsize": 6, "linespacing": 1.35}

Table = Sequence[dict[str, Any]]
Picture = tuple[Canvas, Table] | tuple[Canvas, Table, Sequence[Row]]
"""A figure, the lines of its CSV, and the rows that it shows, by default all that it was given."""


@contextmanager
def style() -> Iterator[None]:
    """Within the block, matplotlib draws without a display and in the style of this module."""
    import matplotlib

    matplotlib.use("Agg")
    with matplotlib.rc_context(_STYLE):
        yield


def scheme_colour(scheme: str) -> str:
    """Return the fixed colour of `scheme`; black for one that has none yet."""
    return SCHEME_COLOURS.get(scheme, "#000000")


def subplots(lines: int, columns: int, **look: Any) -> tuple[Canvas, Any]:
    """Return a figure that lays its axes out itself, and these, line by line."""
    figure, axes = plt.subplots(lines, columns, squeeze=False, layout="constrained", **look)
    return figure, axes


def caption_text(lines: Sequence[str], width_in: float) -> str:
    """Return caption lines wrapped to the width of a figure, to be set below it in the style CAPTION."""
    return "\n".join(part for line in lines for part in textwrap.wrap(line, int(width_in * CHARACTERS_PER_IN)))


def frame(figure: Canvas, title: str, origin: str, ncols: int = 6) -> None:
    """Set the title and one legend for all axes above them, and the line of origin below; called last.

    A label that several axes have stands once in the legend.
    """
    keys: dict[str, Any] = {}
    for axis in figure.axes:
        handles, labels = axis.get_legend_handles_labels()
        keys |= {label: handle for handle, label in zip(handles, labels, strict=True) if label not in keys}
    height_in = figure.get_figheight()
    below = caption_text(origin.splitlines(), figure.get_figwidth() * 1.1)
    lines = -(-len(keys) // ncols)
    top, bottom = 0.3 + 0.16 * lines, 0.14 + 0.1 * (below.count("\n") + 1)
    figure.text(0.01, 1 - 0.07 / height_in, title, va="top", fontweight="bold", fontsize=8)
    if keys:
        look: dict[str, Any] = {"ncols": ncols, "columnspacing": 1.4, "handletextpad": 0.5, "borderpad": 0}
        place = (0.01, 1 - 0.27 / height_in)
        figure.legend(keys.values(), keys, loc="upper left", bbox_to_anchor=place, borderaxespad=0, **look)
    figure.text(0.01, 0.05 / height_in, below, va="bottom", **ORIGIN_LINE)
    engine = figure.get_layout_engine()
    assert engine is not None
    rect = (0, bottom / height_in, 1, 1 - (top + bottom) / height_in)
    engine.set(rect=rect)  # of a constrained layout, which all figures here have


TITLE_IN = 0.2
"""Height of the strip that a title has."""


def titled(figure: Canvas, title: str) -> None:
    """Every figure has its title: above all else, in a strip of its own, where none of its texts is that already."""
    texts = [one.get_text() for one in (*figure.texts, *(axis.title for axis in figure.axes))]
    texts += [axis.get_title(loc="left") for axis in figure.axes]
    engine = figure.get_layout_engine()
    if engine is None or any(title in one for one in texts):
        return
    height_in, legend_in = figure.get_figheight(), 0.0
    if figure.legends:  # those outside of the axes stand at the top of the figure, for any layout
        figure.draw_without_rendering()
        legend_in = 0.05 + max(legend.get_window_extent().height for legend in figure.legends) / figure.dpi
    whole_in = height_in + TITLE_IN
    figure.set_figheight(whole_in)
    figure.text(0.01, 1 - 0.07 / whole_in, title, va="top", fontweight="bold", fontsize=8)
    for legend in figure.legends:
        legend.set_bbox_to_anchor((0, 0, 1, height_in / whole_in), transform=figure.transFigure)
    engine.set(rect=(0, 0, 1, (height_in - legend_in) / whole_in))


def few(panel: Panel) -> Panel:
    """Return a panel with FEW schemes: dense DDP, SSFusion, its rivals, and auto; all there are would be too many."""
    bars = {label: rows for label, rows in panel.bars.items() if rows[0].case.scheme in FEW}
    return replace(panel, bars=bars) if bars else panel


def drawn_panels(
    shown: Sequence[Panel],
    lines: Callable[[Panel], Lines],
    draw: Callable[[Panel, Lines, Axes], None],
    caption: Sequence[str],
    xlabel: str,
) -> tuple[Canvas, Lines]:
    """Return a panel_grid with every panel drawn by `draw` from its lines of the table."""
    tables = [lines(panel) for panel in shown]
    figure, axes = panel_grid(shown, caption, xlabel)
    for panel, table, axis in zip(shown, tables, axes, strict=True):
        draw(panel, table, axis)
    return figure, [line for table in tables for line in table]


def panel_grid(panels: Sequence[Panel], caption: Sequence[str], xlabel: str) -> tuple[Canvas, list[Axes]]:
    """Return a figure with one axis of horizontal bars a panel, each titled with its workload and its origin.

    One panel is a paper column wide, more are two columns wide: three side by side if they share their labels, else
    two. Bars stand at y = 0, 1, ... from the top; the lines of `caption` stand below, wrapped to the figure's width.
    """
    same_bars = len({tuple(map(panel.marked, panel.bars)) for panel in panels}) == 1
    columns = min(len(panels), 3 if same_bars else 2)
    lines = -(-len(panels) // columns)
    width_in = COLUMN_IN if columns == 1 else 2 * COLUMN_IN
    below = caption_text(caption, width_in)
    bars = [max(len(panel.bars) for panel in panels[i : i + columns]) for i in range(0, len(panels), columns)]
    heights_in = [0.75 + 0.17 * most for most in bars]
    size_in = (width_in, sum(heights_in) + 0.35 + 0.11 * below.count("\n"))
    figure, grid = subplots(lines, columns, figsize=size_in, height_ratios=heights_in)
    figure.get_layout_engine().set(wspace=0.05)
    figure.supxlabel(below, **CAPTION)
    axes: list[Axes] = list(grid.flat)
    for spare in axes[len(panels) :]:
        spare.remove()
    for position, (panel, axis) in enumerate(zip(panels, axes, strict=False)):
        elsewhere = panel.case.cluster.name != "local"
        axis.set_title(panel.workload, loc="left", fontweight="bold", pad=20 if elsewhere else 12)
        subtitle = f"{panel.how}, P = {panel.world_size}, batch {panel.case.batch_size} per worker"
        if elsewhere:
            subtitle += f"\n{panel.case.cluster}"
        axis.annotate(subtitle, (0, 1), (0, 4), "axes fraction", textcoords="offset points", fontsize=6.5)
        axis.set_ylim(len(panel.bars) - 0.4, -0.6)
        axis.set_yticks(range(len(panel.bars)), [panel.marked(bar) for bar in panel.bars])
        axis.tick_params(labelleft=not (same_bars and position % columns))
        axis.grid(axis="x")
        axis.set_xlabel(xlabel)
    return figure, axes[: len(panels)]


def facts(panels: Sequence[Panel], *, spread: bool = True) -> list[str]:
    """Return caption lines that say how the numbers were obtained: origin, machine, conditions, number of runs.

    `spread` says that the figure draws whiskers over the runs.
    """
    lines = sorted({f"{panel.words} on {panel.hardware}; {panel.conditions}." for panel in panels})
    disturbed = max(panel.background_cores for panel in panels)
    if disturbed >= 0.1:
        lines.append(f"Other programs kept up to {disturbed:.1f} cores busy during a run.")
    if any(panel.extrapolated(label) for panel in panels for label in panel.bars):
        lines.append("* extrapolated: some of its costs lie beyond the range for which they are known.")
    counts = sorted({count for panel in panels if panel.kind != "simulated" for count in panel.runs})
    if any(panel.kind == "simulated" for panel in panels):
        lines.append("Simulated: one step in virtual time, which no repetition changes; calibration in brackets.")
    if not counts:
        return lines
    number = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    if counts == [1]:
        lines.append("n = 1 run per scheme: nothing is known about the spread between runs.")
    elif spread:
        few = "; few runs: the range is no confidence interval" if counts[0] < 5 else ""
        lines.append(f"Bar: median of n = {number} runs; whiskers: lowest and highest run{few}.")
    else:
        lines.append(f"n = {number} runs per scheme.")
    return lines


def csv_text(table: Table) -> str:
    """Return `table` as CSV text, numbers with six significant digits, so that equal tables give equal text.

    A column that only some lines have is empty in the others.
    """
    out = io.StringIO()
    columns = dict.fromkeys(key for line in table for key in line)
    writer = csv.DictWriter(out, list(columns), lineterminator="\n")
    writer.writeheader()
    for line in table:
        writer.writerow({key: f"{value:.6g}" if isinstance(value, float) else value for key, value in line.items()})
    return out.getvalue()


MANY = 1000
"""Rows beyond which a picture names the digest of their ids instead of each."""


def _pack(png: Path) -> None:
    """A picture has its 256 most frequent colours, a third of the bytes, and what it says of itself."""
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    with Image.open(png) as image:
        said = PngInfo()
        for key, text in image.text.items():  # type: ignore[attr-defined]
            said.add_text(key, text)
        pixels, dpi = np.asarray(image.convert("RGB"), np.int32), image.info["dpi"]
    colours, index, counts = np.unique(pixels @ (65536, 256, 1), return_inverse=True, return_counts=True)
    kept = np.sort(np.argsort(-counts, kind="stable")[:256])
    parts = np.stack([colours >> 16, colours >> 8 & 255, colours & 255], 1)
    nearest = [int(np.square(parts[kept] - one).sum(1).argmin()) for one in parts]
    packed = Image.fromarray(np.array(nearest, np.uint8)[index].reshape(pixels.shape[:2]), "P")
    packed.putpalette(parts[kept].astype(np.uint8).tobytes())
    packed.save(png, optimize=True, pnginfo=said, dpi=dpi)


def save(figure: Canvas, name: str, table: Table, rows: Sequence[Row], out: Path) -> list[Path]:
    """Write out/name.{png,pdf,svg,csv} and return the four paths; RunError when they cannot be written, and none is.

    The images carry the run ids, the origins and the digest of the CSV; they hold no date, so that equal rows give
    equal bytes.
    """
    out.mkdir(parents=True, exist_ok=True)
    text = csv_text(table)
    kinds = ", ".join(sorted({f"{row.kind} on {row.origin.hardware}" for row in rows}))
    runs = " ".join(sorted(row.run_id for row in rows))
    if len(rows) > MANY:  # their ids would be a third of the picture
        runs = f"{len(rows)} runs, sha256 of their ids {hashlib.sha256(runs.encode()).hexdigest()}"
    digest = hashlib.sha256(text.encode()).hexdigest()
    paths = [out / f"{name}.{ending}" for ending in ("png", "pdf", "svg", "csv")]
    keywords = f"runs: {runs}; csv sha256: {digest}"
    try:
        with TemporaryDirectory(dir=out, prefix=".drawing-") as scratch:
            png, pdf, svg, data = (Path(scratch) / path.name for path in paths)
            own, figure.dpi = figure.dpi, DPI  # of the PNG
            figure.draw_without_rendering()
            figure.dpi = own
            figure.set_layout_engine("none")
            for axis in figure.axes:
                axis.set_position([round(edge, 7) for edge in axis.get_position().bounds])
            figure.savefig(
                png, metadata={"Title": name, "Origin": kinds, "Runs": runs, "Csv-Sha256": digest, "Software": "ssfx"}
            )
            _pack(png)
            pdf_facts = {"Subject": kinds, "Keywords": keywords, "CreationDate": None, "Producer": None}
            figure.savefig(pdf, metadata={"Title": name, "Creator": "ssfx", **pdf_facts})
            figure.savefig(svg, metadata={"Title": name, "Creator": "ssfx", "Description": keywords, "Date": None})
            data.write_text(text)
            for path in paths:
                (Path(scratch) / path.name).replace(path)
    except OSError as error:
        raise RunError(f"cannot draw {of_writing(error, out / name, 1_000_000)}") from None
    plt.close(figure)
    return paths
