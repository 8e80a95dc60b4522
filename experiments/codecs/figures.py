"""How many elements sparsifiers send beside how many were asked for: distribution over tensors and steps, per codec."""

from dataclasses import replace
from typing import Any

from experiments.common.figures.figure import Figure
from experiments.common.figures.style import ORIGIN_HATCHES, Axes, Picture, drawn_panels
from ssfx.core.errors import RunError
from ssfx.core.rows import Row
from ssfx.lab.results.comparisons import Panel, metric, panels
from ssfx.lab.results.density_bins import NOTHING, centre, merged, quantile

COLOUR = "#56b4e9"
AREA = 120
"""Of a dot that stands for all segments, in square points."""
LEFT, RIGHT = 1 / 128, 64
TICKS = {1 / 64: "1/64", 1 / 16: "1/16", 1 / 4: "1/4", 1.0: "1", 4.0: "4", 16.0: "16"}
QUANTILES = {"p5": 0.05, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95}


def _achieved(figure: Figure, rows: list[Row]) -> Picture | None:
    """Return one box per codec on a logarithmic axis over the dots of all that was observed."""
    shown = [_by_codec(panel) for panel in panels(rows)]
    if not shown:
        return None
    machines = sorted({f"{panel.words} on {panel.hardware}" for panel in shown})
    text = [f"{'; '.join(machines)}. Box: quartiles; whiskers: 5th to 95th percentile; right: pairs that sent nothing."]
    return drawn_panels(shown, lines, _draw_panel, text, "elements sent / elements asked for")


def _achieved_finding(rows: list[Row]) -> str:
    """Return each codec's median ratio with its 5th and 95th percentile."""
    parts = []
    for panel in map(_by_codec, panels(rows)):
        values = (
            f"{line['codec']} {line['median']:.2g} ({line['p5']:.2g} to {line['p95']:.2g})" for line in lines(panel)
        )
        parts.append(f"{panel.case.model}: {', '.join(values)}")
    return "sent over asked for, median (5th to 95th percentile): " + "; ".join(parts) if parts else "no two workers"


def lines(panel: Panel) -> list[dict[str, Any]]:
    """Return one line of the figure's table per codec: its distribution over tensors, steps and runs."""
    found = []
    for codec, rows in panel.bars.items():
        counts = _counts(rows)
        total = sum(counts.values())
        found.append(
            {
                **panel.columns(),
                "codec": codec,
                "density": rows[0].case.density,
                "runs": len(rows),
                "segments": total,
                **{name: quantile(counts, share) for name, share in QUANTILES.items()},
                "nothing_sent": counts.get(NOTHING, 0) / total,
                "model_density": sum(metric(row, "achieved_density") for row in rows) / len(rows),
                "bins": " ".join(f"{centre(name):.4g}:{count}" for name, count in counts.items()),
            }
        )
    return found


def _by_codec(panel: Panel) -> Panel:
    """Return `panel` with bars named after the codec alone when all have the same scheme."""
    if len({rows[0].case.scheme for rows in panel.bars.values()}) > 1:
        return panel
    bars = {label.partition(" ")[2] or rows[0].case.compressor or label: rows for label, rows in panel.bars.items()}
    return replace(panel, bars=bars)


def _counts(rows: list[Row]) -> dict[str, int]:
    for row in rows:
        if not row.density_ratios:
            raise RunError(
                f"row {row.run_id} ({row.case.label}) says nothing of densities per tensor; "
                "remove it to run the case again"
            )
    return merged(row.density_ratios for row in rows)


def _draw_panel(panel: Panel, table: list[dict[str, Any]], axis: Axes) -> None:
    axis.axvline(1, color="black", linewidth=0.8, zorder=1)
    for y, (line, rows) in enumerate(zip(table, panel.bars.values(), strict=True)):
        sent = {centre(name): count for name, count in _counts(rows).items() if name != NOTHING}
        sizes = [AREA * count / line["segments"] for count in sent.values()]
        axis.scatter(list(sent), [y] * len(sent), s=sizes, color=COLOUR, linewidths=0, zorder=2)
        low, left, middle, right, high = (max(line[name], LEFT) for name in QUANTILES)
        axis.plot([low, high], [y, y], color="black", linewidth=0.8, zorder=3)
        axis.barh(
            y,
            right - left,
            0.5,
            left=left,
            fill=False,
            edgecolor="black",
            linewidth=0.8,
            hatch=ORIGIN_HATCHES[panel.kind],
            zorder=3,
        )
        axis.plot([middle, middle], [y - 0.25, y + 0.25], color="black", linewidth=1.6, zorder=4)
        axis.annotate(
            f"{line['nothing_sent']:.1%}", (1, y), xycoords=("axes fraction", "data"), ha="right", va="center"
        )
    axis.set_xscale("log", base=2)
    axis.set_xticks(list(TICKS), list(TICKS.values()))
    axis.set_xlim(LEFT, RIGHT)
    axis.minorticks_off()


ACHIEVED = Figure(
    "codecs.achieved_density",
    "achieved over target density of each sparsifier",
    _achieved,
    about=("micro.fig1.hard_density",),
    needs={"experiment": "achieved_density"},
    said=_achieved_finding,
    command="ssfx run experiment=achieved_density preset=short repeats=1",
    notes=(
        "What is counted are pairs of a step after warm-up and a tensor of which at least one element is asked for, on "
        "rank 0; the area of a dot is its share of the pairs. topk shows what rounding to whole elements does.",
    ),
)
