"""SSFusion Fig. 9: simulated time of all-gather and all-reduce for one iteration's gradient, from 8 to 64 GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.common.claims.ledger import claims_by_id, claims_of
from experiments.common.claims.simulated import NAMES, claim_columns, judged
from experiments.common.claims.verdicts import Verdict
from experiments.common.figures.paper_words import MODELS, TIMES
from experiments.common.figures.style import COLUMN_IN, frame, save, style
from ssfx.core.rows import Row
from ssfx.lab.results.comparisons import Cell, cells

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "ssfusion.fig9"
TITLE = "Fig. 9: time of All-Gather and All-Reduce per iteration, by number of GPUs"
CLAIMS = ("ssfusion.fig9",)
NEEDS = {"experiment": "collective_scaling", "calibration": bool}

COLLECTIVES = {"fused_all": ("all-gather", "#d55e00"), "ssgd": ("all-reduce", "#5f5f5f")}
ORDER = {"modelA": "first", "modelB": "second"}
MARKERS = {"bert_large": "o", "gpt2_large": "s"}
NOTES = (
    "Both collectives move messages as long as the gradient: ssgd adds them up (dense), fused_all gathers half of the "
    "elements with their indices. The ideal is 0: one device exchanges nothing.",
    "Open symbols, published: the paper's first (circle) and second model, which it does not name, on clusters that it "
    "does not name; BERT-large and GPT2-large have 2.3 times the bytes of one another, its times 2.4 times.",
)


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write one line per model and collective over the number of GPUs, an axis for each calibration."""
    shown = cells(rows)
    if not shown:
        return []
    import matplotlib.pyplot as plt

    calibrations = sorted({cell.calibration for cell in shown})
    with style():
        figure, grid = plt.subplots(
            1, len(calibrations), figsize=(2 * COLUMN_IN, 3.0), squeeze=False, sharey=True, layout="constrained"
        )
        for calibration, axis in zip(calibrations, grid.flat, strict=True):
            _draw_panel(axis, [cell for cell in shown if cell.calibration == calibration])
        grid.flat[0].set_ylabel("time per iteration (s)")
        origin = "Simulated: one exchange of the whole gradient. Open: printed in the paper, for models without names."
        frame(figure, TITLE, origin, ncols=4)
        table = [line for cell in shown for line in lines(cell)] + claim_columns(CLAIMS[0], rows)
        return save(figure, NAME, table, rows, out)


def judge(rows: list[Row]) -> list[Verdict]:
    """Return the verdicts of the simulated rows on the times and their growth."""
    return judged(CLAIMS[0], rows)


def finding(rows: list[Row]) -> str:
    """Return by how much each collective grows from 8 to 64 GPUs."""
    claims = claims_by_id()
    grown = [verdict for verdict in judge(rows) if claims[verdict.claim].metric == "ratio"]
    parts = [f"{claims[verdict.claim].subject} {verdict.ours} ({verdict.calibration})" for verdict in grown]
    return f"64 GPUs over 8: {', '.join(parts)}" if parts else "not simulated on both 8 and 64 GPUs"


def lines(cell: Cell) -> list[dict[str, Any]]:
    """Return one line of the figure's table per collective."""
    return [
        {
            "model": cell.case.model,
            "cluster": str(cell.case.cluster),
            "world_size": cell.case.world_size,
            "origin": cell.how,
            "hardware": row.origin.hardware,
            "collective": COLLECTIVES[scheme][0],
            "message_bytes": cell.value(scheme, "contributed_bytes"),
            "comm_s": cell.value(scheme, "comm_s"),
            "extrapolated": "yes" if cell.extrapolated(scheme) else "no",
            "run": row.run_id,
        }
        for scheme, row in cell.rows.items()
        if scheme in COLLECTIVES
    ]


def _draw_panel(axis: Axes, part: list[Cell]) -> None:
    for model in sorted({cell.case.model for cell in part}):
        for scheme, (collective, colour) in COLLECTIVES.items():
            own = [cell for cell in part if cell.case.model == model and scheme in cell.rows]
            points = sorted((cell.case.world_size, cell.value(scheme, "comm_s")) for cell in own)
            axis.plot(
                *zip(*points, strict=True), color=colour, marker=MARKERS.get(model, "^"), markersize=4, linewidth=1,
                linestyle=":", label=f"{collective}, {MODELS.get(model, model)}",
            )  # fmt: skip
    for claim in claims_of(CLAIMS[0]):
        if claim.metric == "time_s" and claim.bounds:
            colour = dict(COLLECTIVES.values())[claim.subject]
            axis.plot(
                claim.conditions["gpus"], claim.bounds[0], color=colour, linestyle="", fillstyle="none",
                marker=MARKERS[NAMES[claim.conditions["model"]]], markersize=7,
                label=f"{claim.subject}, paper's {ORDER[claim.conditions['model']]} model",
            )  # fmt: skip
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    sizes = sorted({cell.case.world_size for cell in part})
    axis.set_xticks(sizes, [str(size) for size in sizes])
    axis.set_xlabel("GPUs")
    axis.grid()
    axis.set_title(TIMES.get(part[0].calibration, part[0].how), loc="left")
