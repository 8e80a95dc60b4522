"""SSFusion Fig. 2: the share of time spent on sparsification by fusion degree, in the paper and measured here."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from experiments.common.claims.ledger import claims_of
from experiments.common.claims.verdicts import Outcome, Verdict
from experiments.common.figures.style import COLUMN_IN, frame, save, style
from ssfx.core.rows import Row
from ssfx.lab.results.comparisons import metric

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "ssfusion.fig2"
TITLE = "Fig. 2: share of time spent on sparsification, by fusion degree"
NEEDS = {"experiment": "missing_rate"}
COMMAND = "ssfx run experiment=missing_rate preset=short"
COST = "5 minutes on two cores"
MODELS = {"resnet152_digits": "ResNet-152", "bert_large_narrow": "BERT-large"}
"""Models here that have every tensor of one of the paper's."""
PANELS = {"resnet152_digits": "(a) ResNet-152", "bert_large_narrow": "(b) BERT-large, narrow"}
NOTES = (
    "The paper's other curve, quality by fusion degree, is drawn from long runs: `ssfx figures ssfusion.fig2.quality`.",
    "Our share is that of a step on two CPU ranks, the paper's that of training on eight V100S: levels do not compare.",
)


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write a panel per model: our share by fusion degree and memory, the paper's as open marks."""
    found = shares(rows)
    if not found:
        return []
    import matplotlib.pyplot as plt

    with style():
        size_in = (COLUMN_IN * max(1.3, len(found)), 2.7)
        figure, grid = plt.subplots(1, len(found), figsize=size_in, squeeze=False, layout="constrained")
        for (model, memories), axis in zip(found.items(), grid.flat, strict=True):
            _draw_panel(axis, model, memories)
        grid.flat[0].set_ylabel("sparsification, share of the time (%)")
        kinds = "; ".join(sorted({f"{row.origin.kind} on {row.origin.hardware}" for row in rows}))
        frame(
            figure, TITLE, f"{kinds[0].upper()}{kinds[1:]}, two workers; level not comparable with the paper's GPUs.", 3
        )
        table = [
            {
                "model": model,
                "memory": memory,
                "fusion_degree": degree or "per-tensor",
                "sparsification_percent": value,
                "paper_percent": _printed(model).get(degree),
            }
            for model, memories in found.items()
            for memory, series in memories.items()
            for degree, value in series.items()
        ]
        return save(figure, NAME, table, rows, out)


def finding(rows: list[Row]) -> str:
    """Return the share of per-tensor sparsification and that of full fusion, per model."""
    parts = []
    for model, memories in shares(rows).items():
        for memory, series in memories.items():
            values = list(series.values())
            parts.append(f"{model}, memory {memory}: {values[0]:.3g} to {values[-1]:.3g} %")
    return f"sparsification's share of a step, from least to full fusion: {'; '.join(parts) or 'no rows'}"


def judge(rows: list[Row]) -> list[Verdict]:
    """Return whether the share falls with the fusion degree, and our levels, which do not compare."""
    found = shares(rows)
    series = [one for memories in found.values() for one in memories.values() if len(one) > 1]
    if not series:
        return []
    steps = [a > b for one in series for a, b in pairwise([one[degree] for degree in one if degree])]
    outcome: Outcome = "agrees" if all(steps) else "disagrees"
    here = f"falls in {sum(steps)} of {len(steps)} steps between fusion degrees"
    said = "On two CPU ranks, ResNet-152 and a narrow BERT-large, with and without residual."
    return [Verdict(f"{NAME}.mono.share", outcome, here, "measured", "", said, COMMAND, COST)]


def shares(rows: list[Row]) -> dict[str, dict[str, dict[float, float]]]:
    """Return the share of sparsification in percent by model, memory and fusion degree (0: per-tensor)."""
    found: dict[str, dict[str, dict[float, list[float]]]] = {}
    for row in rows:
        case = row.case
        if case.world_size < 2 or case.scheme not in ("per_tensor", "fused_all") or case.model not in MODELS:
            continue
        degree = float(case.scheme_options.get("fusion_degree", 100)) if case.scheme == "fused_all" else 0.0
        if case.scheme == "fused_all" and degree == 0:
            continue  # which is per-tensor under another name
        share = 100 * metric(row, "sparsify_s") / metric(row, "iteration_s")
        found.setdefault(case.model, {}).setdefault(str(case.memory), {}).setdefault(degree, []).append(share)
    return {
        model: {
            memory: {degree: median(values) for degree, values in sorted(degrees.items())}
            for memory, degrees in sorted(found[model].items())
        }
        for model in MODELS
        if model in found
    }


def _printed(model: str) -> dict[float, float]:
    """Return the shares that the paper prints, by fusion degree."""
    found = {}
    for claim in claims_of(NAME):
        if claim.metric == "sparsification_share" and claim.bounds and claim.conditions.get("model") == MODELS[model]:
            found[float(claim.conditions.get("fusion_degree", 0))] = claim.bounds[0]
    return found


def _draw_panel(axis: Axes, model: str, memories: Mapping[str, Mapping[float, float]]) -> None:
    colours = {"residual": "#0072b2", "none": "#e69f00"}
    for memory, series in memories.items():
        look: dict[str, Any] = {"color": colours.get(memory, "#5f5f5f"), "markersize": 4, "linewidth": 1}
        word = "without residual" if memory == "none" else "with residual"
        axis.plot(list(series), list(series.values()), "o-", label=f"here, {word}", **look)
    printed = _printed(model)
    mark: dict[str, Any] = {"color": "black", "fillstyle": "none", "markersize": 5}
    axis.plot(list(printed), list(printed.values()), "D", label="printed in the paper", **mark)
    degrees = [0, 20, 40, 60, 80, 100]
    axis.set_xticks(degrees, ["per-\ntensor", *map(str, degrees[1:])])
    axis.set_xlabel("fusion degree (%)")
    axis.set_ylim(0)
    axis.set_title(PANELS[model], loc="left", fontweight="bold")
    axis.grid(axis="y")
