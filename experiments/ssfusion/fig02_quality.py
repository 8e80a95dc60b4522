"""SSFusion Fig. 2, its quality: after training, by how many tensors are compressed jointly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from experiments.common.claims.ledger import claims_by_id
from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.gaps import Finals, judged_gaps, trained
from experiments.common.evaluation.judging import number
from experiments.common.evaluation.quality_curves import SCALE, compared, judged_order, origin, quality, values
from experiments.common.figures.style import COLUMN_IN, ORIGIN_LINE, save, style
from ssfx.core.rows import Row

NAME = "ssfusion.fig2.quality"
TITLE = "Fig. 2, quality by fusion degree"
CLAIMS = ("ssfusion.fig2",)
NEEDS = {"experiment": "fusion_degree", "calibration": ""}
COMMAND = "ssfx run experiment=fusion_degree repeats=3"

COLOURS = {"error feedback": "#0072b2", "no error feedback": "#d55e00"}
FED_BACK = "error feedback"
PANELS = {"resnet": ("a", "acc"), "bert": ("b", "f1")}
"""The family of models of the paper's panels, and the quality that they show."""
ALL = 100

Found = Mapping[str, Mapping[str, Mapping[int, list[float]]]]
"""Model -> memory in words -> fusion degree in percent -> final quality of every seed."""


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write the median and the range of the seeds over the fusion degree, a panel for each model."""
    found = finals(rows)
    if not found:
        return []
    import matplotlib.pyplot as plt

    names = {row.case.model: quality(row) for row in rows}
    table = []
    with style():
        figure, grid = plt.subplots(
            1, len(found), figsize=(COLUMN_IN * max(len(found), 1.4), 2.6), squeeze=False, layout="constrained"
        )
        keys = {}
        for axis, (model, memories) in zip(grid[0], found.items(), strict=True):
            for label, degrees in memories.items():
                at = sorted(degrees)
                low, middle, high = ([one(degrees[degree]) for degree in at] for one in (min, median, max))
                keys[label] = axis.plot(at, middle, color=COLOURS[label], marker="o", markersize=3, linewidth=1.2)[0]
                axis.fill_between(at, low, high, color=COLOURS[label], alpha=0.2, linewidth=0)
                table += [
                    {"model": model, "memory": label, "fusion_degree": x, "low": a, "median": b, "high": c}
                    for x, a, b, c in zip(at, low, middle, high, strict=True)
                ]
            axis.set_title(model, loc="left", fontweight="bold")
            axis.set_xlabel("tensors compressed jointly (%)")
            axis.set_ylabel(names[model])
            axis.grid()
        figure.legend(keys.values(), keys.keys(), loc="outside upper center", ncols=2)
        figure.supxlabel(origin(rows), x=0.01, ha="left", **ORIGIN_LINE)
        return save(figure, NAME, table, rows, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return whether quality with all tensors joined is below that of tensors one by one, beyond the seeds."""
    pairs = [
        (f"{model} with {label}", *compared(degrees[ALL], degrees[0]), "below")
        for model, memories in finals(rows).items()
        for label, degrees in memories.items()
        if {0, ALL} <= set(degrees)
    ]
    found = [judged_order("ssfusion.fig2.mono.acc", pairs)] if pairs else []
    for task, (panel, metric) in PANELS.items():
        own = [(model, memories[FED_BACK]) for model, memories in finals(rows).items() if task in model]
        words = trained([row for row in rows if task in row.case.model]) if own else ""
        sets = [Finals({str(degree): values for degree, values in degrees.items()}, words, "0") for _, degrees in own]
        start = f"ssfusion.fig2.{panel}"
        claims = {str(degree): f"{start}.fd{degree}.{metric}" for degree in (20, ALL)}
        claims = {degree: claim for degree, claim in claims.items() if claim in claims_by_id()}
        printed = {degree: number(claim) / number(f"{start}.per.{metric}") for degree, claim in claims.items()}
        found += judged_gaps(sets, claims, printed)
    return found


def finding(rows: list[Row]) -> str:
    """Return quality tensor by tensor and with all tensors joined, for each model and memory."""
    parts = [
        f"{model}, {label}: {median(degrees[0]):.3g} tensor by tensor, {median(degrees[ALL]):.3g} all joined"
        for model, memories in finals(rows).items()
        for label, degrees in memories.items()
        if {0, ALL} <= set(degrees)
    ]
    return "; ".join(parts) + f" ({SCALE})" if parts else ""


def finals(rows: Sequence[Row]) -> Found:
    """Return the final quality of rows by model, memory and fusion degree; degree 0 is tensor by tensor."""
    found: dict[str, dict[str, dict[int, list[float]]]] = {}
    for row in rows:
        case = row.case
        label = "no error feedback" if case.memory in (None, "none") else "error feedback"
        degree = 0 if case.scheme == "per_tensor" else int(case.scheme_options.get("fusion_degree", ALL))
        own = found.setdefault(case.model, {}).setdefault(label, {}).setdefault(degree, [])
        own.extend(values([row], quality(row)))
    return found
