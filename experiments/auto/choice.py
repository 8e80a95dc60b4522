"""What scheme=auto sends and how, over the bandwidth between nodes, and what that gains; worked out on its plans."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.common.evaluation.configured import cluster
from experiments.common.figures.style import ORIGIN_LINE, save, scheme_colour, style
from ssfx.core.rows import Row
from ssfx.core.spec import name_of
from ssfx.perf_model.operator_counts import model_work
from ssfx.perf_model.plan_costs import costs_on
from ssfx.perf_model.target import profile_for
from ssfx.planning.plan import Lane, Plan
from ssfx.schemes.make_plan import make_plan
from ssfx.simulator.pricing.timeline import evaluate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "auto.choice"
TITLE = "what scheme=auto sends, by bandwidth"
CLAIMS = ()
NOTES = (
    "No paper's figure: the scheme that chooses per bucket. Times are those of a step without its forward pass and "
    "optimizer.",
)

CLUSTER = "64gpu"
MODELS = {"ResNet-152": "resnet152", "BERT-large": "bert_large"}
GBPS = (1.0, 5.0, 10.0, 25.0, 50.0, 100.0, 400.0)
METHODS = {
    "dense, 32 bits": "#d9d9d9", "16 bits": "#9ecae1", "four bits": "#4292c6", "one bit": "#084594",
    "low rank": "#74c476", "top-k, agreed positions summed": "#fdae6b", "top-k gathered": "#e6550d",
    "top-k summed on the way": "#9e9ac8",
}  # fmt: skip
"""Methods in the order in which they are stacked, with their colours."""
_BY_COMPRESSOR = {
    "fp16": "16 bits", "bf16": "16 bits", "qsgd": "four bits", "onebit": "one bit", "acpsgd": "low rank",
    "powersgd": "low rank", "cltk": "top-k, agreed positions summed", "block_topk": "top-k, agreed positions summed",
}  # fmt: skip


@dataclass(frozen=True)
class NetworkPoint:
    """At one bandwidth: the share of the elements that each method sends, and how many times as fast a step is."""

    gbps: float
    shares: dict[str, float]
    over_dense16: float


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write a panel for each model: shares stacked, and the speed over dense messages in 16 bits."""
    import matplotlib.pyplot as plt

    table: list[dict[str, Any]] = []
    with style():
        figure, axes = plt.subplots(1, len(MODELS), figsize=(7.4, 2.9), squeeze=False, layout="constrained")
        for axis, (label, model) in zip(axes[0], MODELS.items(), strict=True):
            found = points(model)
            _panel(axis, label, found)
            table += [
                {"model": model, "gbps": one.gbps, "over_dense16": one.over_dense16, **one.shares} for one in found
            ]
        used = [name for name in METHODS if any(line[name] > 0 for line in table)]
        keys = [plt.Rectangle((0, 0), 1, 1, color=METHODS[name]) for name in used]
        speed = plt.Line2D([], [], color=scheme_colour("auto"), marker="o", markersize=3)
        figure.legend([*keys, speed], [*used, "speed over dense, 16 bits"], loc="outside upper center", ncols=4)
        origin = "Plans for 64 A100 GPUs with quality=normal, and their times, by data sheets: nominal, not measured."
        figure.supxlabel(origin, x=0.01, ha="left", **ORIGIN_LINE)
        return save(figure, NAME, table, rows, out)


def _panel(axis: Axes, title: str, found: list[NetworkPoint]) -> None:
    at = [one.gbps for one in found]
    stacks = [[100 * one.shares[name] for one in found] for name in METHODS]
    axis.stackplot(at, stacks, colors=list(METHODS.values()), linewidth=0)
    axis.set_xscale("log")
    axis.set_xlim(at[0], at[-1])
    axis.set_xticks([1, 10, 100, 400], ["1", "10", "100", "400"])
    axis.minorticks_off()
    axis.set_ylim(0, 100)
    axis.set_xlabel("bandwidth between nodes (Gbit/s)")
    axis.set_ylabel("gradient elements (%)")
    axis.set_title(title, loc="left", fontweight="bold")
    speed = axis.twinx()
    speed.plot(at, [one.over_dense16 for one in found], color=scheme_colour("auto"), marker="o", markersize=3)
    speed.set_ylim(0, None)
    speed.set_ylabel("times as fast", color=scheme_colour("auto"))


def finding(rows: list[Row]) -> str:
    """Return the speed over dense 16-bit messages at the lowest and the highest bandwidth."""
    parts = []
    for label, model in MODELS.items():
        first, *_, last = points(model)
        ends = (f"{one.over_dense16:.2g}x at {one.gbps:g} Gbit/s" for one in (first, last))
        parts.append(f"{label} {' and '.join(ends)}")
    return f"scheme=auto over dense 16-bit messages: {'; '.join(parts)} (nominal)"


@cache
def points(model: str) -> list[NetworkPoint]:
    """Return what auto plans and how long it takes at each bandwidth."""
    work, usual = model_work(model), cluster(CLUSTER)
    profile = profile_for(work.model, usual, work.batch_size, work.optimizer)
    found = []
    for gbps in GBPS:
        on = replace(usual, inter=replace(usual.inter, gbps=gbps))
        costs = costs_on(on, None, None)
        plan = make_plan("auto", profile, costs, {"ranks_per_node": on.devices_per_node})
        dense = make_plan("ddp_fp16", profile, costs)
        dense_s, auto_s = (evaluate(one, profile, costs).total_s for one in (dense, plan))
        found.append(NetworkPoint(gbps, _shares(plan), dense_s / auto_s))
    return found


def _shares(plan: Plan) -> dict[str, float]:
    total = sum(spec.numel for spec in plan.tensors)
    shares = dict.fromkeys(METHODS, 0.0)
    for _, lane in plan.lanes():
        for segment in lane.segments:
            shares[_method(lane, segment.compressor)] += plan.numel(segment) / total
    return shares


def _method(lane: Lane, compressor: str | None) -> str:
    if compressor is None:
        return "dense, 32 bits"
    gathers = "top-k gathered" if lane.collective.startswith("all_gather") else "top-k summed on the way"
    return _BY_COMPRESSOR.get(name_of(compressor), gathers)
