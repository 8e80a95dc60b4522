"""Grouped bars of simulated schemes: a panel for each model and calibration, a group for each value of what is varied.

Beside the bars stand what they are judged by, dense DDP and the ideal, and below them the claims they speak to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ssfx.claims.simulated import claim_lines, judged
from ssfx.figures.style import CAPTION, COLUMN_IN, ORIGIN_HATCHES, caption_text, save, scheme_colour, style
from ssfx.results.comparisons import DENSE_BASELINE
from ssfx.results.rows import Row
from ssfx.results.simulated_cells import Cell, against_dense, cells, position

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SPEED = "throughput_samples_per_s"
PANEL_IN = 1.65
"""Height of a panel."""


@dataclass(frozen=True)
class Groups:
    """What a figure of grouped bars varies, and what its bars are.

    `at` returns where the group of a cell stands and what it is called, `panel` what a panel has in common beside the
    calibration.
    """

    name: str
    artifact: str
    varied: str
    at: Callable[[Cell], tuple[float, str]]
    panel: Callable[[Cell], str] = lambda cell: f"{cell.case.model} / {cell.case.dataset}, batch {cell.case.batch_size}"
    metric: str = SPEED
    label: str = "throughput (samples/s)"

    def draw(self, rows: Sequence[Row], out: Path, notes: Sequence[str] = ()) -> list[Path]:
        """Write the figure from the simulated rows, with the lines of `notes` in its caption; nothing without rows."""
        shown: dict[tuple[str, str], list[Cell]] = {}
        for cell in sorted(cells(rows), key=lambda cell: (self.panel(cell), cell.calibration, self.at(cell))):
            shown.setdefault((self.panel(cell), cell.calibration), []).append(cell)
        if not shown:
            return []
        import matplotlib.pyplot as plt

        drawn = [cell for part in shown.values() for cell in part]
        found = judged(self.artifact, rows)
        below = caption_text([*_facts(drawn), *notes, *claim_lines(found)], 2 * COLUMN_IN)
        calibrations = sorted({calibration for _, calibration in shown})
        columns = len(calibrations)
        lines = len({panel for panel, _ in shown})
        schemes = _schemes(drawn)
        with style():
            height_in = PANEL_IN * lines + 0.6 + 0.11 * below.count("\n")
            figure, grid = plt.subplots(
                lines, columns, figsize=(2 * COLUMN_IN, height_in), squeeze=False, layout="constrained"
            )
            figure.supxlabel(below, **CAPTION)
            places = {panel: line for line, panel in enumerate(dict.fromkeys(panel for panel, _ in shown))}
            empty = set(product(range(lines), range(columns)))
            for (panel, calibration), part in shown.items():
                place = places[panel], calibrations.index(calibration)
                empty.discard(place)
                self._draw_panel(grid[place], panel, part, schemes)
            for place in empty:
                grid[place].remove()
            keys = {
                label: key for axis in figure.axes for key, label in zip(*axis.get_legend_handles_labels(), strict=True)
            }
            figure.legend(
                [keys[scheme] for scheme in schemes], schemes, loc="outside upper center", ncols=6, columnspacing=1.2
            )
            table = [line for cell in drawn for line in self.lines(cell)]
            return save(figure, self.name, [*table, *(one.columns() for one in found)], rows, out)

    def lines(self, cell: Cell) -> list[dict[str, Any]]:
        """Return one line of the figure's table per scheme; what does not fit into memory has no times."""
        case = cell.case
        ideal = cell.ideal(SPEED)
        found = []
        for scheme, row in cell.rows.items():
            fits = cell.fits(scheme)
            speed = cell.value(scheme, SPEED) if fits else None
            found.append(
                {
                    "workload": f"{case.model} / {case.dataset}",
                    "cluster": str(case.cluster),
                    "world_size": case.world_size,
                    "batch_size": case.batch_size,
                    "origin": cell.how,
                    "hardware": row.origin.hardware,
                    self.varied: self.at(cell)[1],
                    "scheme": scheme,
                    "compressor": row.case.compressor or "",
                    "density": row.case.density,
                    "iteration_s": cell.value(scheme, "iteration_s") if fits else None,
                    "samples_per_s": speed,
                    "vs_ddp": against_dense(cell, scheme),
                    "ideal_samples_per_s": ideal,
                    "scaling_factor": speed / ideal if speed and ideal else None,
                    "memory_gib": (row.metrics.get("peak_memory_bytes") or 0) / 2**30 or None,
                    "fits": "yes" if fits else "no",
                    "extrapolated": "yes" if cell.extrapolated(scheme) else "no",
                    "run": row.run_id,
                }
            )
        return found

    def _draw_panel(self, axis: Axes, title: str, part: Sequence[Cell], schemes: Sequence[str]) -> None:
        width = 0.84 / len(schemes)
        for x, cell in enumerate(part):
            here = [scheme for scheme in schemes if scheme in cell.rows]
            start = x - width * (len(here) - 1) / 2
            for i, scheme in enumerate(here):
                at = start + i * width
                colour = scheme_colour(cell.rows[scheme].case.scheme)
                height = cell.value(scheme, self.metric) if cell.fits(scheme) else 0.0
                axis.bar(
                    at, height, 0.92 * width, color=colour, hatch=ORIGIN_HATCHES["simulated"],
                    edgecolor="white", linewidth=0, label=scheme,
                )  # fmt: skip
                said = "" if cell.fits(scheme) else "does not fit"
                said += "*" if height and cell.extrapolated(scheme) else ""
                axis.annotate(
                    said, (at, height), ha="center", va="bottom", fontsize=5, rotation=90 if height == 0 else 0
                )
            ends = x - 0.46, x + 0.46
            if DENSE_BASELINE in cell.rows and cell.fits(DENSE_BASELINE):
                axis.hlines(cell.value(DENSE_BASELINE, self.metric), *ends, color="black", linewidth=0.8)
            ideal = cell.ideal(self.metric)
            if ideal and any(map(cell.fits, cell.rows)):
                axis.hlines(ideal, *ends, color="black", linewidth=0.8, linestyle=(0, (4, 2)))
        axis.set_xticks(range(len(part)), [self.at(cell)[1] for cell in part])
        axis.set_xlabel(self.varied)
        axis.set_ylabel(self.label)
        axis.grid(axis="y")
        axis.set_ylim(0, axis.get_ylim()[1] * 1.05)
        axis.set_title(title, loc="left", fontweight="bold", pad=12)
        axis.annotate(part[0].how, (0, 1), (0, 4), "axes fraction", textcoords="offset points", fontsize=6.5)


def finding(rows: Sequence[Row]) -> str:
    """Return, by calibration, what the best scheme and SSFusion gain over dense DDP in the settings of the figure."""
    parts = []
    found = cells(rows)
    for calibration in sorted({cell.calibration for cell in found}):
        own = [cell for cell in found if cell.calibration == calibration]
        best = sorted(max(gains) for cell in own if (gains := _gains(cell)))
        if best:
            said = f"best {_times(best[0])} to {_times(best[-1])}"
            full = [gain for cell in own for gain, scheme in _gains(cell) if scheme == "ssfusion_oi"]
            said += f", ssfusion_oi {min(full):.2f}x to {max(full):.2f}x" if full else ""
            parts.append(f"{calibration}: {said}")
    return f"simulated throughput over dense DDP, {'; '.join(parts)}" if parts else "no scheme beside dense DDP"


def _gains(cell: Cell) -> list[tuple[float, str]]:
    others = (scheme for scheme in cell.rows if scheme != DENSE_BASELINE)
    return [(gain, scheme) for scheme in others if (gain := against_dense(cell, scheme)) is not None]


def _times(gain: tuple[float, str]) -> str:
    return f"{gain[0]:.2f}x ({gain[1]})"


def _facts(drawn: Sequence[Cell]) -> list[str]:
    """Return caption lines: what was simulated, and what the marks mean."""
    hardware = sorted({row.origin.hardware for cell in drawn for row in cell.rows.values()})
    batches = sorted({f"{cell.case.model} {cell.case.batch_size}" for cell in drawn})
    sizes = sorted({cell.case.world_size for cell in drawn})
    densities = sorted({row.case.density for cell in drawn for row in cell.rows.values() if row.case.density})
    text = [
        f"Simulated on {'; '.join(hardware)}: one step in virtual time; P = {', '.join(map(str, sizes))}; samples per "
        f"device: {', '.join(batches)}; density {', '.join(f'{density:g}' for density in densities)}.",
        "Solid line: dense DDP. Dashed line: ideal, one device alone, without any exchange.",
    ]
    if any(cell.extrapolated(scheme) for cell in drawn for scheme in cell.rows):
        text.append("* extrapolated: some of its costs lie beyond the range for which they are known.")
    return text


def _schemes(drawn: Sequence[Cell]) -> list[str]:
    return sorted({scheme for cell in drawn for scheme in cell.rows}, key=position)
