"""SSFusion's throughput beside its rivals', simulated and on this machine: Figs. 5(a), 11 and 14 to 17."""

from typing import Any

from experiments.common.claims.ledger import claims_by_id
from experiments.common.claims.values import BASELINES, SPEED
from experiments.common.claims.verdicts import Verdict, compared
from experiments.common.figures.auto import AT_DENSITY, AUTO, BY_QUALITY, NO_PRINTED_TIMES, SAME_COMPRESSOR, budget_said
from experiments.common.figures.figure import Figure, simulated
from experiments.common.figures.gains import Gains
from experiments.common.figures.grouped_bars import Groups, judge_cells
from experiments.common.figures.paper_words import MODELS
from experiments.common.figures.style import ORIGIN_HATCHES, Axes, Picture, drawn_panels, facts, few, scheme_colour
from ssfx.core.rows import Row
from ssfx.lab.results.comparisons import DENSE_BASELINE, Cell, Panel, Spread, cells, metric, panels

# ---- Fig. 5(a): per-tensor, multi-tensor and selective sparsification ------------------------------------------------

PRINTED = {"per_tensor": "per", "ssfusion_naive": "sel"}


def _printed(cell: Cell, scheme: str) -> float | None:
    name = MODELS.get(cell.case.model, "").lower().replace("-", "")
    claim = claims_by_id().get(f"ssfusion.fig5.{name}.{PRINTED.get(scheme, '')}")
    return claim.bounds[0] if claim and claim.bounds else None


def _alone(cell: Cell) -> tuple[float, str]:
    return metric(cell.single, "iteration_s") if cell.single else 0.0, MODELS.get(cell.case.model, cell.case.model)


FIG5 = Figure(
    "ssfusion.fig5",
    "Fig. 5(a): time of an iteration with per-tensor, multi-tensor and selective sparsification",
    Groups(
        "model",
        _alone,
        panel=lambda cell: f"{cell.case.world_size} V100S",
        metric="iteration_s",
        label="time per iteration (s)",
        schemes=("ddp", "per_tensor", "fused_all", "ssfusion_naive"),
        paper=_printed,
    ),
    judge_cells,
    needs=simulated("selective"),
    notes=(
        "Per-tensor: scheme=per_tensor; multi-tensor: fused_all; selective: ssfusion_naive, leaving small tensors "
        "dense.",
        "Diamonds: the times that the paper prints for its V100S cluster, read in the order in which it lists them.",
    ),
)


# ---- Figs. 11, 14 and 15: gains over six rivals ----------------------------------------------------------------------


def _fig11_verdicts(figure: Figure, rows: list[Row]) -> list[Verdict]:
    """Return the verdicts on the number of rivals and on gains over them."""
    run = [rival for rival in BASELINES if any(rival in cell.rows for cell in cells(rows))]
    number = compared("ssfusion.setup.baselines", 6, len(run), decimals=0, unit="rivals")
    return [number, *judge_cells(figure, rows)]


FIG11 = Figure(
    "ssfusion.fig11",
    "Fig. 11: throughput of SSFusion over that of each rival, 200 Gbit/s between nodes",
    Gains("resnet152 vit_large bert_large gpt2_large", "rivals"),
    _fig11_verdicts,
    needs=simulated("throughput"),
    command="ssfx run experiment=throughput cluster=16gpu,32gpu,64gpu cluster.calibration=nominal,published",
    notes=(
        "Dots: the throughput of SSFusion over that of the rival, less one; filled with every method at its best, open "
        "as the paper ran them (HiPress by size, Espresso's search as printed, OMGS's two messages, SSFusion by Eq. "
        "2); claims are held against the latter. Grey: the range that the paper prints for this rival.",
        f"{BY_QUALITY} {NO_PRINTED_TIMES}",
        "The absolute throughput of every scheme is in the CSV.",
    ),
)

SPARSIFIERS = {"gaussiank": "Gaussiank", "dgc": "DGC", "redsync": "RedSync", "sidco": "SIDCo"}
"""In the paper's order."""


def _sparsifier(cell: Cell) -> tuple[float, str]:
    known = list(SPARSIFIERS)
    place = known.index(cell.compressor) if cell.compressor in known else len(known)
    return place, SPARSIFIERS.get(cell.compressor, cell.compressor)


FIG14 = Figure(
    "ssfusion.fig14",
    "Fig. 14: throughput of SSFusion over that of each rival, by sparsifier, 64 GPUs",
    Gains("resnet152 bert_large", "settings", _sparsifier, "sparsifier"),
    judge_cells,
    needs=simulated("compressors"),
    notes=(
        "Grey: the range that the paper prints for this model and sparsifier over its six rivals. It contradicts the "
        "range of Experiment 1 for the same setting (SSF-02).",
        "OkTopk and SparDL take exact top-k only: the same rows stand beside every sparsifier.",
        SAME_COMPRESSOR,
    ),
)
FIG15 = Figure(
    "ssfusion.fig15",
    "Fig. 15: throughput of SSFusion over that of each rival, by density, 64 GPUs",
    Gains("", "settings", lambda cell: (-cell.density, f"density {cell.density:g}"), "density asked for"),
    judge_cells,
    needs=simulated("density"),
    notes=(
        "Grey: the range that the paper prints for this density over its six rivals. That of density 0.01 is also "
        "printed for 100 Gbit/s in Experiment 6 (SSF-03).",
        f"{AT_DENSITY} {NO_PRINTED_TIMES}",
    ),
)


# ---- Figs. 16 and 17: bandwidth, and large models --------------------------------------------------------------------

LINE_RATE_GBPS = 200.0
"""Of the cluster without an option, and of the paper's other experiments."""


def _rate(cell: Cell) -> tuple[float, str]:
    gbps = float(cell.options.get("inter.gbps", LINE_RATE_GBPS))
    return gbps, f"{gbps:g}"


def _device(cell: Cell) -> tuple[float, str]:
    gib = {row.manifest["device_memory_bytes"] / 2**30 for row in cell.rows.values()}
    return -max(gib), f"A100 {max(gib):.0f} GB"


FIG16 = Figure(
    "ssfusion.fig16",
    "Fig. 16: throughput by bandwidth between nodes, ResNet-152 on 64 GPUs",
    Groups("line rate of a node (Gbit/s)", _rate),
    judge_cells,
    needs=simulated("bandwidth"),
    notes=(
        "The paper does not name the model of this experiment; ResNet-152 is that of Experiment 5, whose range at "
        "density 0.01 is the one that it prints for 100 Gbit/s here (SSF-03).",
        "The paper prints ranges of gains alone, no throughput.",
        f"{BY_QUALITY} {NO_PRINTED_TIMES}",
    ),
)
FIG17 = Figure(
    "ssfusion.fig17",
    "Fig. 17: throughput of two large models on 64 GPUs of 40 and 80 GB",
    Groups("device", _device),
    judge_cells,
    needs=simulated("large_models"),
    notes=(
        "Memory by footprint: float32 weights, gradients, AdamW state, residual, activations with fused attention. The "
        "paper prints no batch size: one sample, as its 38.2 GB for GPT2-XL leave room for no more.",
        "OkTopk and SparDL send one message, whose 32-bit indices do not reach over BLOOM-3B.",
        f"{BY_QUALITY} {NO_PRINTED_TIMES}",
    ),
)


# ---- Fig. 11 on this machine: beside dense DDP and the single worker's ideal -----------------------------------------


def _here(figure: Figure, rows: list[Row]) -> Picture | None:
    """Return bars of the median throughput, whiskers over all runs, the scaling factor T_P / (P T_1) at its right."""
    shown = [few(panel) for panel in panels(rows)]
    if not shown:
        return None
    return drawn_panels(shown, lines, _here_panel, [*facts(shown), *budget_said(rows)], "throughput (samples/s)")


def _here_finding(rows: list[Row]) -> str:
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
    """Return one line of the table per bar."""
    single = Spread.of(panel.single, SPEED).median if panel.single else None
    dense = Spread.of(panel.dense, SPEED).median if panel.dense else None
    found = []
    for label, rows in panel.bars.items():
        spread = Spread.of(rows, SPEED)
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


def _here_panel(panel: Panel, table: list[dict[str, Any]], axis: Axes) -> None:
    ideal = table[0]["ideal_samples_per_s"]
    right = max([line["highest"] for line in table] + [ideal or 0.0])
    for y, (line, rows) in enumerate(zip(table, panel.bars.values(), strict=True)):
        axis.barh(
            y,
            line["samples_per_s"],
            0.72,
            color=scheme_colour(rows[0].case.scheme),
            hatch=ORIGIN_HATCHES[panel.kind],
            edgecolor="white",
            linewidth=0,
        )
        if line["runs"] > 1:
            axis.plot([line["lowest"], line["highest"]], [y, y], color="black", linewidth=0.8, marker="|", markersize=4)
        if line["scaling_factor"] is not None:
            said = f"{line['scaling_factor']:.2f}"
            axis.annotate(said, (1, y), xycoords=("axes fraction", "data"), ha="right", va="center")
    if panel.dense:
        axis.axvline(Spread.of(panel.dense, SPEED).median, color="black", linewidth=0.8)
    if ideal:
        axis.axvline(ideal, color="black", linewidth=0.8, linestyle=(0, (4, 2)))
    axis.set_xlim(0, right * 1.25)  # leaves room for the column of scaling factors


FIG11_HERE = Figure(
    "ssfusion.fig11_here",
    "Throughput of small models on this machine, beside dense DDP",
    _here,
    about=("ssfusion.fig11", "ssfusion.headline.throughput"),
    needs={"experiment": "throughput", "calibration": ""},
    command="ssfx run experiment=throughput preset=short",
    said=_here_finding,
    notes=(
        "Solid line: dense DDP. Dashed line: ideal, P times the throughput of one worker alone. Number at the right: "
        "scaling factor, throughput over the ideal.",
    ),
)
