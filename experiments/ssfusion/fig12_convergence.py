"""SSFusion Fig. 12, its end points: quality on held-out data after training, per scheme. The curves are not drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ssfx.core.errors import RunError
from ssfx.figures.style import drawn_panels, facts, save, scheme_colour, style
from ssfx.results.comparisons import DENSE_BASELINE, Panel, Spread, metric, panels
from ssfx.results.rows import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "ssfusion.fig12"
TITLE = "quality after training per scheme"
CLAIMS = ("ssfusion.fig12", "ssfusion.headline.accuracy")
NEEDS = {"experiment": "convergence"}
COMMAND = "ssfx run experiment=convergence preset=short repeats=1"

QUALITY = {"top1": "top-1 accuracy (higher is better)", "perplexity": "perplexity per byte (lower is better)"}


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write one dot per run and a bar at the median of each scheme, beside the range of dense DDP."""
    shown = panels(rows)
    if not shown:
        return []
    tables = [lines(panel) for panel in shown]
    steps = sorted({str(panel.case.steps) for panel in shown})
    text = [
        *facts(shown, spread=False),
        f"Quality after {' or '.join(steps)} steps. One dot per run, a bar at the median; band: range of dense DDP.",
    ]
    with style():
        figure = drawn_panels(shown, tables, _draw_panel, text, "")
        return save(figure, NAME, [line for table in tables for line in table], rows, out)


def finding(rows: list[Row]) -> str:
    """Return, per workload, the median quality of every scheme."""
    parts = []
    for panel in panels(rows):
        values = ", ".join(f"{line['scheme']} {line['median']:.3g}" for line in lines(panel))
        parts.append(f"{panel.case.model} ({_quality(panel)}): {values}")
    return "; ".join(parts)


def lines(panel: Panel) -> list[dict[str, Any]]:
    """Return one line of the figure's table per scheme."""
    name = _quality(panel)
    found = []
    for label, rows in panel.bars.items():
        spread = Spread.of(rows, name)
        found.append(
            {
                **panel.columns(),
                "scheme": label,
                "metric": name,
                "median": spread.median,
                "lowest": spread.low,
                "highest": spread.high,
                "runs": spread.runs,
            }
        )
    return found


def _quality(panel: Panel) -> str:
    rows = [row for bar in panel.bars.values() for row in bar]
    for name in QUALITY:
        if any(row.metrics.get(name) is not None for row in rows):
            return name
    raise RunError(
        f"row {rows[0].run_id} ({rows[0].case.label}) has neither top1 nor perplexity; run with evaluate=true"
    )


def _draw_panel(panel: Panel, table: list[dict[str, Any]], axis: Axes) -> None:
    name = _quality(panel)
    for y, (line, rows) in enumerate(zip(table, panel.bars.values(), strict=True)):
        colour = scheme_colour(rows[0].case.scheme)
        values = [metric(row, name) for row in rows]
        axis.scatter(values, [y] * len(rows), s=16, color=colour, edgecolors="black", linewidths=0.4, zorder=3)
        axis.plot([line["median"]] * 2, [y - 0.32, y + 0.32], color="black", linewidth=1.2)
        if line["scheme"] == DENSE_BASELINE:
            axis.axvspan(line["lowest"], line["highest"], color="#ececec", zorder=0)
    axis.set_xlabel(QUALITY[name])
    axis.margins(x=0.12)
