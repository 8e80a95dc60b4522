"""SSFusion Fig. 11: training throughput of every scheme, beside dense DDP and the single worker's ideal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.common.figures.auto import AUTO, budget_said
from experiments.common.figures.style import ORIGIN_HATCHES, drawn_panels, facts, few, save, scheme_colour, style
from ssfx.core.rows import Row
from ssfx.lab.results.comparisons import DENSE_BASELINE, Panel, Spread, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "ssfusion.fig11_here"
TITLE = "Throughput of small models on this machine, beside dense DDP"
CLAIMS = ("ssfusion.fig11", "ssfusion.headline.throughput")
NEEDS = {"experiment": "throughput", "calibration": ""}
COMMAND = "ssfx run experiment=throughput preset=short"

NOTES = (
    "Solid line: dense DDP. Dashed line: ideal, P times the throughput of one worker alone. Number at the right: "
    "scaling factor, throughput over the ideal.",
)

METRIC = "throughput_samples_per_s"


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write bars of the median throughput, whiskers over all runs, the scaling factor T_P / (P T_1) at its right."""
    shown = [few(panel) for panel in panels(rows)]
    if not shown:
        return []
    tables = [lines(panel) for panel in shown]
    text = [*facts(shown), *budget_said(rows)]
    with style():
        figure = drawn_panels(shown, tables, _draw_panel, text, "throughput (samples/s)")
        return save(figure, NAME, [line for table in tables for line in table], rows, out)


def finding(rows: list[Row]) -> str:
    """Return, per workload, the worst and the best sparse scheme relative to dense DDP, and how sure that is."""
    parts = []
    for panel in panels(rows):
        table = lines(panel)
        dense = next((line for line in table if line["scheme"] == DENSE_BASELINE), None)
        sparse = sorted((line for line in table if line["sparse"]), key=lambda line: line["samples_per_s"])
        if dense and sparse:
            worst, best = (_relative(line, dense) for line in (sparse[0], sparse[-1]))
            parts.append(f"{panel.name}: {worst} to {best}")
    if not parts:
        return "no sparse scheme beside dense DDP"
    fewest = min(count for panel in panels(rows) for count in panel.runs)
    caveat = "one run each, so no order is certain" if fewest == 1 else f"n = {fewest} or more"
    return f"sparse schemes relative to dense DDP ({caveat}): " + "; ".join(parts)


def _relative(line: dict[str, Any], dense: dict[str, Any]) -> str:
    apart = line["lowest"] > dense["highest"] or line["highest"] < dense["lowest"]
    note = "" if apart else ", ranges overlap"
    return f"{line['vs_ddp']:.2f}x ({line['scheme']}{note})"


def lines(panel: Panel) -> list[dict[str, Any]]:
    """Return one line of the figure's table per bar."""
    single = Spread.of(panel.single, METRIC).median if panel.single else None
    dense = Spread.of(panel.dense, METRIC).median if panel.dense else None
    found = []
    for label, rows in panel.bars.items():
        spread = Spread.of(rows, METRIC)
        found.append(
            {
                **panel.columns(),
                "scheme": label,
                "sparse": rows[0].case.density is not None and rows[0].case.scheme != AUTO,
                "samples_per_s": spread.median,
                "lowest": spread.low,
                "highest": spread.high,
                "runs": spread.runs,
                "vs_ddp": spread.median / dense if dense else None,
                "ideal_samples_per_s": panel.world_size * single if single else None,
                "scaling_factor": spread.median / (panel.world_size * single) if single else None,
                **panel.mark(label),
            }
        )
    return found


def _draw_panel(panel: Panel, table: list[dict[str, Any]], axis: Axes) -> None:
    ideal = table[0]["ideal_samples_per_s"]
    right = max([line["highest"] for line in table] + [ideal or 0.0])
    for y, (line, rows) in enumerate(zip(table, panel.bars.values(), strict=True)):
        axis.barh(
            y, line["samples_per_s"], 0.72, color=scheme_colour(rows[0].case.scheme), hatch=ORIGIN_HATCHES[panel.kind],
            edgecolor="white", linewidth=0,
        )  # fmt: skip
        if line["runs"] > 1:
            axis.plot([line["lowest"], line["highest"]], [y, y], color="black", linewidth=0.8, marker="|", markersize=4)
        if line["scaling_factor"] is not None:
            axis.annotate(
                f"{line['scaling_factor']:.2f}", (1, y), xycoords=("axes fraction", "data"), ha="right", va="center"
            )
    if panel.dense:
        axis.axvline(Spread.of(panel.dense, METRIC).median, color="black", linewidth=0.8)
    if ideal:
        axis.axvline(ideal, color="black", linewidth=0.8, linestyle=(0, (4, 2)))
    axis.set_xlim(0, right * 1.25)  # leaves room for the column of scaling factors
