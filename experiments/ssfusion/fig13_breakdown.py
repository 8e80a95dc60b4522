"""SSFusion Fig. 13 (Experiment 3): where the time of an iteration goes, and what SSFusion saves of it, simulated."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.common.claims.ledger import ledgers
from experiments.common.claims.simulated import claim_columns, judged
from experiments.common.claims.values import LEAST, METHODS
from experiments.common.claims.verdicts import Verdict
from experiments.common.figures.auto import (
    BY_QUALITY,
    LABEL,
    NO_PRINTED_TIMES,
    auto_of,
    mark_bar,
    mark_names,
    say_absent,
)
from experiments.common.figures.breakdown import PARTS
from experiments.common.figures.paper_words import MODELS, RIVALS, SCHEMES, TIMES, panel_order, scheme_name
from experiments.common.figures.style import COLUMN_IN, frame, save, style
from ssfx.core.rows import Row
from ssfx.lab.results.comparisons import AS_THE_PAPER_RAN, Cell, as_the_paper_ran, cells

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "ssfusion.fig13"
TITLE = "Fig. 13: time of an iteration by part, 64 GPUs, and communication that SSFusion saves"
CLAIMS = (NAME,)
NEEDS = {"experiment": "breakdown", "calibration": bool}
NOTES = (
    "Communication is what computing does not hide. Diamonds: the reduction of communication that the paper prints. "
    "Bars and filled dots have every method at its best, open dots as the paper ran it; claims are held against those.",
    "No ratio is shown where the rival's communication takes less than two percent of its iteration: HiPress leaves "
    "tensors uncompressed where that is predicted to be faster, on ResNet-152 with 200 Gbit/s all of them.",
    f"{BY_QUALITY} {NO_PRINTED_TIMES}",
)

SUBJECT = "ssfusion_oi"
LIMITS = (-100.0, 100.0)


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write bars of the parts per scheme, and below them what SSFusion saves of the rivals' communication."""
    shown = sorted(cells(rows), key=lambda cell: (panel_order(cell), cell.calibration))
    if not shown:
        return []
    import matplotlib.pyplot as plt

    calibrations = sorted({cell.calibration for cell in shown})
    models = list(dict.fromkeys(cell.case.model for cell in shown))
    with style():
        heights = [1.55, 1.15] * len(models)
        figure, grid = plt.subplots(
            2 * len(models), len(calibrations), figsize=(2 * COLUMN_IN, sum(heights) + 1.4), squeeze=False,
            height_ratios=heights, layout="constrained",
        )  # fmt: skip
        for cell in shown:
            line, column = 2 * models.index(cell.case.model), calibrations.index(cell.calibration)
            _draw_parts(grid[line, column], cell, any(map(auto_of, shown)))
            _draw_savings(grid[line + 1, column], cell)
            letter = "ab"[models.index(cell.case.model) % 2]
            title = (
                f"({letter}) {MODELS.get(cell.case.model, cell.case.model)}, {TIMES.get(cell.calibration, cell.how)}"
            )
            grid[line, column].set_title(title, loc="left", fontweight="bold")
            for axis in grid[line : line + 2, column]:
                axis.tick_params(labelleft=column == 0)
        origin = "Simulated: one step in virtual time for each scheme. Nothing is fitted to the paper's values."
        frame(figure, TITLE, origin, ncols=5)
        table = [line for cell in shown for line in lines(cell)]
        return save(figure, NAME, [*table, *claim_columns(NAME, rows)], rows, out)


def judge(rows: list[Row]) -> list[Verdict]:
    """Return the verdicts of the simulated rows on what SSFusion saves."""
    return judged(NAME, rows)


def finding(rows: list[Row]) -> str:
    """Return, by calibration, what SSFusion saves of its rivals' communication."""
    parts = []
    found = cells(rows)
    for calibration in sorted({cell.calibration for cell in found}):
        own = [cell for cell in found if cell.calibration == calibration]
        saved = [value for cell in own for rival in RIVALS if (value := saving(cell, rival)) is not None]
        if saved:
            more = sum(value < 0 for value in saved)
            parts.append(f"{calibration}: more communication than the rival in {more} of {len(saved)}")
    return f"simulated communication of SSFusion, {'; '.join(parts)}" if parts else "no rival beside SSFusion"


def lines(cell: Cell) -> list[dict[str, Any]]:
    """Return one line of the figure's table per scheme: its parts in seconds, and what SSFusion saves of them."""
    return [
        {
            "model": cell.case.model,
            "cluster": str(cell.case.cluster),
            "world_size": cell.case.world_size,
            "origin": cell.how,
            "hardware": row.origin.hardware,
            "scheme": scheme,
            "iteration_s": cell.value(scheme, "iteration_s"),
            **{name: cell.value(scheme, name) for name in PARTS},
            "saved_by_ssfusion": listed_saving(cell, scheme),
            "extrapolated": "yes" if cell.extrapolated(scheme) else "no",
            "run": row.run_id,
        }
        for scheme, row in cell.rows.items()
    ]


def saving(cell: Cell, rival: str) -> float | None:
    """Return what SSFusion saves of a rival's exposed communication, as a fraction; None where that is too little."""
    if rival == SUBJECT or rival not in cell.rows or SUBJECT not in cell.rows:
        return None
    theirs_s = cell.value(rival, "exposed_comm_s")
    if theirs_s < LEAST * cell.value(rival, "iteration_s"):
        return None
    return 1 - cell.value(SUBJECT, "exposed_comm_s") / theirs_s


def listed_saving(cell: Cell, label: str) -> float | None:
    """Return what SSFusion saves of the communication of a row; both as the paper ran them if that row is."""
    printed = next((scheme for scheme, row in AS_THE_PAPER_RAN.items() if row == label), None)
    return saving(cell, label) if printed is None else saving(as_the_paper_ran(cell), printed)


def _draw_parts(axis: Axes, cell: Cell, place_for_auto: bool) -> None:
    schemes = [scheme for scheme in SCHEMES if scheme in cell.rows]
    names = [scheme_name(scheme) for scheme in schemes]
    auto = auto_of(cell)
    schemes += [auto] if auto else []
    names += [LABEL] * place_for_auto
    left = [0.0] * len(schemes)
    for name, (label, colour) in PARTS.items():
        width = [1e3 * cell.value(scheme, name) for scheme in schemes]
        axis.barh(range(len(schemes)), width, 0.74, left=left, label=label, color=colour, linewidth=0)
        left = [a + b for a, b in zip(left, width, strict=True)]
    if ideal_s := cell.ideal("iteration_s"):
        axis.axvline(1e3 * ideal_s, color="black", linewidth=0.8, linestyle=(0, (4, 2)), label="ideal: no exchange")
    if auto:
        mark_bar(axis, len(schemes) - 1, left[-1], 0.74, horizontal=True)
    elif place_for_auto:
        say_absent(axis, len(schemes))
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.4, -0.5)
    axis.set_xlabel("time of an iteration (ms)")
    axis.grid(axis="x")
    mark_names(axis)


def _draw_savings(axis: Axes, cell: Cell) -> None:
    for y, rival in enumerate(RIVALS):
        value = saving(cell, rival)
        if value is None:
            axis.text(LIMITS[0] + 3, y, "no ratio: next to nothing to save", va="center", fontsize=5.8, color="#666666")
        else:
            x = max(100 * value, LIMITS[0])
            axis.plot([x], [y], "o", color="#0072b2", markersize=4, label="saved by SSFusion here", clip_on=False)
            if x != 100 * value:
                said = f"{1 - value:.1f} times as much"
                axis.text(x + 4, y, said, va="center", fontsize=5.8, color="#0072b2")
        ran = as_the_paper_ran(cell)
        printed_way = saving(ran, rival) if ran is not cell else None
        if printed_way is not None:
            axis.plot(
                [max(100 * printed_way, LIMITS[0])], [y + 0.25], "o", color="#d55e00", fillstyle="none", markersize=4,
                label="as the paper ran them", clip_on=False,
            )  # fmt: skip
    for rival, printed in _printed(cell):
        axis.plot(
            [100 * printed], [RIVALS.index(rival)], "D", color="black", fillstyle="none", markersize=4,
            label="printed in the paper",
        )  # fmt: skip
    axis.axvline(0, color="black", linewidth=0.8)
    axis.set_xlim(*LIMITS)
    axis.set_yticks(range(len(RIVALS)), [scheme_name(rival) for rival in RIVALS])
    axis.set_ylim(len(RIVALS) - 0.5, -0.5)
    axis.set_xlabel("communication that SSFusion saves (%)")
    axis.grid(axis="x")


def _printed(cell: Cell) -> Sequence[tuple[str, float]]:
    """Return the reductions of communication that the paper prints for a cell's model, with the rival."""
    model = MODELS.get(cell.case.model)
    return [
        (METHODS[claim.baseline or ""], claim.bounds[0])
        for claim in (claim for ledger in ledgers() for claim in ledger.claims if claim.artifact == NAME)
        if ".comm." in claim.id and claim.bounds and claim.conditions.get("model") == model
    ]
