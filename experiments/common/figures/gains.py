"""SSFusion's gain over each rival as dots, over the range that the paper claims for them.

Rows of a panel are the rivals, with a dot for each cluster size; or the settings of an experiment, with a dot for each
rival. A gain is the ratio of throughputs less one, of simulated rows in the same setting. scheme=auto stands below the
rivals, and has no range.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from experiments.common.claims.grouped import grouped
from experiments.common.claims.ledger import claims_of
from experiments.common.claims.simulated import claim_columns, meets
from experiments.common.claims.values import BASELINES, METHODS, SPEED
from experiments.common.figures.auto import COLOUR, LABEL, auto_of, mark_names, say_absent
from experiments.common.figures.figure import Figure
from experiments.common.figures.paper_words import TIMES, columns, panel_order, panel_title, scheme_name
from experiments.common.figures.style import COLUMN_IN, Axes, Picture, frame, scheme_colour, subplots
from ssfx.core.rows import Row
from ssfx.lab.results.comparisons import AS_THE_PAPER_RAN, Cell, as_the_paper_ran, cells

MARKERS = {"hipress": "o", "oktopk": "s", "spardl": "D", "espresso": "^", "omgs": "v", "cupcake": "P"}
"""Where points of rivals stand near to one another: colour is then not all that tells them apart."""
SUBJECT = "ssfusion_oi"
LIMITS = (-100.0, 200.0)
"""Percent that are shown; what lies beyond stands at the edge with its number."""
LINE_IN = 0.19
ORIGIN = "Simulated: one step in virtual time for each setting. Nothing is fitted to the ranges that the paper claims."
SIZES = {16: 9, 32: 18, 64: 34}
"""Area of a dot by number of GPUs."""


@dataclass(frozen=True)
class Gains:
    """What a figure of gains shows: the models of its panels in order, and what its lines are.

    `at` returns where the line of a cell stands and what it is called; lines that are rivals need none.
    """

    letters: str
    lines: Literal["rivals", "settings"]
    at: Callable[[Cell], tuple[float, str]] = lambda cell: (cell.case.world_size, f"{cell.case.world_size} GPUs")
    varied: str = "cluster"

    def __call__(self, what: Figure, rows: list[Row]) -> Picture | None:
        """Return a panel per model and calibration from the simulated rows; None without a gain in them."""
        shown = [cell for cell in cells(rows) if any(gain(cell, one) is not None for one in BASELINES)]
        if not shown:
            return None
        calibrations = sorted({cell.calibration for cell in shown})
        first = {cell.case.model: cell for cell in sorted(shown, key=panel_order, reverse=True)}
        panels = sorted(first.values(), key=panel_order)
        table = [line for cell in shown for line in self.table(cell)]
        auto = any(map(auto_of, shown))
        count = len(BASELINES) + auto if self.lines == "rivals" else len({self.at(cell)[1] for cell in shown})
        drawn = [*shown, *map(as_the_paper_ran, shown)]
        values = [100 * value for cell in drawn for one in BASELINES if (value := gain(cell, one)) is not None]
        values += [100 * value for cell in shown if (value := over_auto(cell)) is not None]
        limits = max(LIMITS[0], min(-20.0, *values) - 5), min(LIMITS[1], max(115.0, *values) + 5)
        height_in = len(panels) * (LINE_IN * count + 0.42) + 1.1
        figure, grid = subplots(len(panels), len(calibrations), figsize=(2 * COLUMN_IN, height_in), sharex=True)
        for number, (axes, panel) in enumerate(zip(grid, panels, strict=True)):
            model = panel.case.model
            for axis, calibration in zip(axes, calibrations, strict=True):
                part = [one for one in shown if (one.case.model, one.calibration) == (model, calibration)]
                self._draw_panel(axis, what.name, part, auto)
                axis.tick_params(labelleft=axis is axes[0])
                axis.set_xlim(*limits)
            pad = 4 if number else 14
            axes[0].set_title(panel_title(panel, self.letters), loc="left", fontweight="bold", pad=pad)
        for axis, calibration in zip(grid[0], calibrations, strict=True):
            axis.annotate(
                TIMES.get(calibration, calibration), (0, 1), (0, 4), "axes fraction", textcoords="offset points"
            )
        for axis in grid[-1]:
            axis.set_xlabel("throughput of SSFusion over the rival's, less one (%)")
        text = ORIGIN
        if self.lines == "settings" and any(as_the_paper_ran(cell) is not cell for cell in shown):
            text += " Methods as the paper ran them."
        if any(_dense(as_the_paper_ran(cell), one) for cell in shown for one in BASELINES):
            text += " d: SSFusion or the rival sends everything dense there."
        frame(figure, what.title, text, ncols=4 if self.lines == "settings" else 6)
        return figure, [*table, *claim_columns(what.name, rows)]

    def table(self, cell: Cell) -> list[dict[str, Any]]:
        """Return one line per scheme of a cell: its throughput, and SSFusion's gain over it."""
        return [
            {
                **columns(cell, scheme, "model dataset cluster world_size batch_size origin hardware"),
                self.varied: self.at(cell)[1],
                **columns(cell, scheme, "scheme compressor density sent samples_per_s ideal_samples_per_s"),
                "ssfusion_gain": listed(gain, cell, scheme),
                **columns(cell, scheme, "fits extrapolated run"),
            }
            for scheme in cell.rows
        ]

    def finding(self, rows: Sequence[Row]) -> str:
        """Return, by calibration, the range of SSFusion's gains over all rivals and settings."""
        parts = []
        for calibration, own in sorted(grouped(cells(rows), lambda cell: cell.calibration).items()):
            gains = [value for cell in own for rival in BASELINES if (value := gain(cell, rival)) is not None]
            if gains:
                slower = sum(value < 0 for value in gains)
                said = f"{100 * min(gains):+.0f} to {100 * max(gains):+.0f} %, slower in {slower} of {len(gains)}"
                parts.append(f"{calibration}: {said}")
        return (
            f"simulated gain of SSFusion over its rivals, {'; '.join(parts)}" if parts else "no rival beside SSFusion"
        )

    def _draw_panel(self, axis: Axes, artifact: str, part: Sequence[Cell], auto: bool) -> None:
        if self.lines == "rivals":
            names = [scheme_name(rival) for rival in BASELINES]
            for y, rival in enumerate(BASELINES):
                _draw_band(axis, y, [band for cell in part for band in bands(artifact, cell, rival, only=True)])
                for cell in part:  # filled: methods at their best; open, a little lower: as the paper ran them
                    gpus = cell.case.world_size
                    size = SIZES.get(gpus, 18)
                    _point(axis, y, gain(cell, rival), "o", size, "#0072b2", f"{gpus} GPUs")
                    if (ran := as_the_paper_ran(cell)) is not cell:
                        said, mark = "as the paper ran them", _dense(ran, rival)
                        _point(axis, y + 0.22, gain(ran, rival), "o", size, "none", said, edge="#d55e00", mark=mark)
            names += [LABEL] * auto
            if auto and not any(map(auto_of, part)):
                say_absent(axis, len(BASELINES))
            for cell in part:
                size = SIZES.get(cell.case.world_size, 18)
                _point(axis, len(BASELINES), over_auto(cell), "o", size, COLOUR, f"over {LABEL}")
        else:
            places = sorted({self.at(cell) for cell in part})
            names = [label for _, label in places]
            for cell in part:
                y = places.index(self.at(cell))
                _draw_band(axis, y, [band for rival in BASELINES for band in bands(artifact, cell, rival)])
                for number, rival in enumerate(BASELINES):
                    shift = 0.09 * (number - (len(BASELINES) - 1) / 2)
                    colour, label = scheme_colour(rival), f"over {scheme_name(rival)}"
                    ran = as_the_paper_ran(cell)
                    at, mark = y + shift, _dense(ran, rival)
                    _point(axis, at, gain(ran, rival), MARKERS[rival], 20, colour, label, mark=mark)
                _point(axis, y + 0.36, over_auto(cell), "d", 18, COLOUR, f"over {LABEL}")
        axis.axvline(0, color="black", linewidth=0.8)
        axis.set_yticks(range(len(names)), names)
        axis.set_ylim(len(names) - 0.45, -0.55)
        axis.grid(axis="x")
        mark_names(axis)


def gain(cell: Cell, scheme: str) -> float | None:
    """Return SSFusion's gain over a scheme, as a fraction; None where one of them is missing or does not fit."""
    if scheme == SUBJECT or not all(one in cell.rows and cell.fits(one) for one in (scheme, SUBJECT)):
        return None
    return cell.value(SUBJECT, SPEED) / cell.value(scheme, SPEED) - 1


def _dense(cell: Cell, rival: str) -> str:
    """Return the letter of a gain of which one side sends everything dense, at any density asked for."""
    return "d" * any(name in cell.rows and cell.sent(name) == "dense" for name in (rival, SUBJECT))


def over_auto(cell: Cell) -> float | None:
    """Return SSFusion's gain over scheme=auto, as a fraction; None where that is not shown."""
    label = auto_of(cell)
    return None if label is None else gain(cell, label)


def listed(value: Callable[[Cell, str], float | None], cell: Cell, label: str) -> float | None:
    """Return what SSFusion has over the scheme of a row; both as the paper ran them if that row is."""
    printed = next((scheme for scheme, row in AS_THE_PAPER_RAN.items() if row == label), None)
    return value(cell, label) if printed is None else value(as_the_paper_ran(cell), printed)


def bands(artifact: str, cell: Cell, rival: str, *, only: bool = False) -> list[tuple[float, float]]:
    """Return the ranges that the paper claims for SSFusion's gain over a rival in a cell's setting.

    `only`: those about this rival or two, not those about all of them.
    """
    ranges = []
    for claim in claims_of(artifact):
        about_it = claim.metric == "throughput_speedup" and METHODS.get(claim.subject) == SUBJECT
        if not about_it or claim.bounds is None or not meets(claim, cell):
            continue
        against = [METHODS.get(name, "") for name in (claim.baseline or "").split("|")]
        if rival in against and (len(against) < 3) == only:
            ranges.append(claim.bounds)
    return ranges


def _draw_band(axis: Axes, y: float, ranges: Sequence[tuple[float, float]]) -> None:
    if ranges:
        low, high = 100 * min(one[0] for one in ranges), 100 * max(one[1] for one in ranges)
        axis.barh(y, high - low, 0.82, left=low, color="#e2e2e2", zorder=0.5, label="range in the paper")


def _point(
    axis: Axes,
    y: float,
    value: float | None,
    marker: str,
    size: float,
    colour: str,
    label: str,
    edge: str = "",
    mark: str = "",
) -> None:
    if value is None:
        return
    x = min(max(100 * value, LIMITS[0]), LIMITS[1])
    edges: dict[str, Any] = {"edgecolors": edge, "linewidths": 0.8} if edge else {"linewidths": 0}
    axis.scatter([x], [y], s=size, marker=marker, facecolors=colour, label=label, zorder=3, **edges)
    if mark:
        axis.annotate(mark, (x, y), (3.5, 0), textcoords="offset points", va="center", fontsize=5.5)
    if x != 100 * value:
        axis.annotate(
            f"{100 * value:+.0f} %", (x, y), (-3, 0), textcoords="offset points", ha="right", va="center", fontsize=5.5
        )
