"""What scheme=auto chooses, and what a quality of it rests on."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from math import exp
from statistics import median
from typing import Any

from experiments.common.claims.grouped import grouped
from experiments.common.evaluation.configured import cluster
from experiments.common.evaluation.quality_panels import origin
from experiments.common.figures.figure import Figure, say_origin
from experiments.common.figures.style import COLUMN_IN, Axes, Picture, caption_text, plt, scheme_colour, subplots
from ssfx.compressors import build
from ssfx.core.rows import Row
from ssfx.core.spec import name_of
from ssfx.lab.calibration.extra_steps import Record, fitted, records
from ssfx.lab.calibration.long_runs import EXPERIMENT, EXPERIMENTS, setting_of
from ssfx.perf_model.operator_counts import model_work
from ssfx.perf_model.plan_costs import costs_on
from ssfx.perf_model.target import profile_for
from ssfx.planning.plan import Plan
from ssfx.schemes.make_plan import make_plan
from ssfx.schemes.search.auto_budget import EIGHT_BITS, FOUR_BITS
from ssfx.schemes.search.extra_steps import TRAIN_STEPS, between, log_steps, more
from ssfx.simulator.pricing.timeline import evaluate

# ---- What scheme=auto sends and how, over the bandwidth between nodes, and what that gains; worked out on its plans --

CLUSTER = "64gpu"
MODELS = {"ResNet-152": "resnet152", "BERT-large": "bert_large"}
GBPS = (1.0, 5.0, 10.0, 25.0, 50.0, 100.0, 400.0)
METHODS = {
    "dense, 32 bits": "#d9d9d9",
    "16 bits": "#c6dbef",
    "eight bits": "#6baed6",
    "four bits": "#2171b5",
    "one bit": "#08306b",
    "low rank": "#74c476",
    "top-k, agreed positions summed": "#fdae6b",
    "top-k gathered": "#e6550d",
    "top-k summed on the way": "#9e9ac8",
}
"""Methods in the order in which they are stacked, with their colours."""
_BY_COMPRESSOR = {
    "fp16": "16 bits",
    "bf16": "16 bits",
    "fp8": "eight bits",
    EIGHT_BITS: "eight bits",
    FOUR_BITS: "four bits",
    "onebit": "one bit",
    "acpsgd": "low rank",
    "powersgd": "low rank",
    "cltk": "top-k, agreed positions summed",
    "block_topk": "top-k, agreed positions summed",
}


def _choice(figure: Figure, rows: list[Row]) -> Picture | None:
    """Return a panel for each model: shares stacked, and the speed over dense messages in 16 bits."""
    table: list[dict[str, Any]] = []
    canvas, axes = subplots(1, len(MODELS), figsize=(7.4, 2.9))
    for axis, (label, model) in zip(axes[0], MODELS.items(), strict=True):
        _choice_panel(axis, label, points(model))
        table += points(model)
    used = [name for name in METHODS if any(line[name] > 0 for line in table)]
    keys = [plt.Rectangle((0, 0), 1, 1, color=METHODS[name]) for name in used]
    speed = plt.Line2D([], [], color=scheme_colour("auto"), marker="o", markersize=3)
    canvas.legend([*keys, speed], [*used, "speed over dense, 16 bits"], loc="outside upper center", ncols=4)
    origin = "Plans for 64 A100 GPUs with quality=normal, and their times, by data sheets: nominal, not measured."
    say_origin(canvas, origin)
    return canvas, table


def _choice_panel(axis: Axes, title: str, found: list[dict[str, Any]]) -> None:
    at = [one["gbps"] for one in found]
    stacks = [[100 * one[name] for one in found] for name in METHODS]
    axis.stackplot(at, stacks, colors=list(METHODS.values()), linewidth=0)
    axis.set(xscale="log", xlim=(at[0], at[-1]))
    axis.set_xticks([1, 10, 100, 400], ["1", "10", "100", "400"])
    axis.minorticks_off()
    axis.set(ylim=(0, 100), xlabel="bandwidth between nodes (Gbit/s)", ylabel="gradient elements (%)")
    axis.set_title(title, loc="left", fontweight="bold")
    speed = axis.twinx()
    speed.plot(at, [one["over_dense16"] for one in found], color=scheme_colour("auto"), marker="o", markersize=3)
    speed.set_ylim(0, None)
    speed.set_ylabel("times as fast", color=scheme_colour("auto"))


def _choice_finding(rows: list[Row]) -> str:
    """Return the speed over dense 16-bit messages at the lowest and the highest bandwidth."""
    parts = []
    for label, model in MODELS.items():
        first, *_, last = points(model)
        ends = (f"{one['over_dense16']:.2g}x at {one['gbps']:g} Gbit/s" for one in (first, last))
        parts.append(f"{label} {' and '.join(ends)}")
    return f"scheme=auto over dense 16-bit messages: {'; '.join(parts)} (nominal)"


@cache
def points(model: str) -> list[dict[str, Any]]:
    """Return at each bandwidth how many times as fast a step of auto is, and the share of elements by method."""
    work, usual = model_work(model), cluster(CLUSTER)
    profile = profile_for(work.model, usual, work.batch_size, work.optimizer)
    found = []
    for gbps in GBPS:
        on = replace(usual, inter=replace(usual.inter, gbps=gbps))
        costs = costs_on(on, None, None)
        plan = make_plan("auto", profile, costs, {"ranks_per_node": on.devices_per_node})
        dense = make_plan("ddp_fp16", profile, costs)
        dense_s, auto_s = (evaluate(one, profile, costs).total_s for one in (dense, plan))
        found.append({"model": model, "gbps": gbps, "over_dense16": dense_s / auto_s, **_shares(plan)})
    return found


def _shares(plan: Plan) -> dict[str, float]:
    total = sum(spec.numel for spec in plan.tensors)
    shares = dict.fromkeys(METHODS, 0.0)
    for _, lane in plan.lanes():
        for segment in lane.segments:
            gathers = "top-k gathered" if lane.collective.startswith("all_gather") else "top-k summed on the way"
            compressor = segment.compressor
            by = _BY_COMPRESSOR.get(str(compressor)) or _BY_COMPRESSOR.get(name_of(str(compressor)))
            if by is None and compressor is not None and not build(compressor).sparse:
                raise ValueError(f"{compressor} selects nothing, and has no name in this figure")
            sent = "dense, 32 bits" if compressor is None else by or gathers
            shares[sent] += plan.numel(segment) / total
    return shares


CHOICE = Figure(
    "auto.choice",
    "what scheme=auto sends, by bandwidth",
    _choice,
    about=(),
    said=_choice_finding,
    notes=(
        "No paper's figure: the scheme that chooses per bucket. Times are those of a step without its forward pass and "
        "optimizer.",
    ),
)


# ---- Extra steps by class of method and compression ------------------------------------------------------------------

MARKERS = {"conv": "o", "lstm": "s", "transformer": "^", "vision transformer": "D"}
"""By family."""
TICKS, SHARES = (2, 5, 20, 100, 500), (0.0, 0.1, 0.3, 1.0, 3.0, 9.0)
"""Ticks. Shares are on a line up to a tenth, and in logarithms beyond."""


def _extra_steps(figure: Figure, rows: list[Row]) -> Picture | None:
    """Return a panel for each class: curves of the usual batch and an interval, a mark for each record that decides."""
    found = [one for one in records(rows) if one.decides]
    if not found:
        return None
    law = fitted(found)
    canvas, axes = subplots(2, 3, figsize=(7.4, 4.4), sharey=True)
    for unused in axes.flat[len(law["classes"]) :]:
        unused.set_axis_off()
    table: list[dict[str, Any]] = []
    keys: dict[str, Any] = {}
    for axis, (kind, curve) in zip(axes.flat, law["classes"].items(), strict=False):
        first, last = 0.9 * curve["log_compression"][0], 1.1 * curve["log_compression"][-1]
        ratios = [exp(first + (last - first) * step / 60) for step in range(61)]
        for steps, style in ((law["steps"]["usual"], "solid"), (TRAIN_STEPS, "dashed")):
            ends = zip(*(log_steps(law, kind, "", "", ratio, None, steps) for ratio in ratios), strict=True)
            low, middle, high = ([exp(one) - 1 for one in line] for line in ends)
            if steps == law["steps"]["usual"]:
                axis.fill_between(ratios, low, high, color="0.88", linewidth=0)
            words = f"{steps:,} steps"
            (keys[words],) = axis.plot(ratios, middle, color="black", linewidth=1.0, linestyle=style)
        for one in (one for one in found if one.kind == kind):
            family, long = one.trained.family, one.steps > law["steps"]["usual"]
            words = "at least" if one.at_least else "longer training" if long else family
            colour = {"at least": "#e6550d", "longer training": "#238b45"}.get(words, "#2171b5")
            keys[words] = axis.scatter(
                [one.ratio], [exp(one.value) - 1], s=14, marker=MARKERS[family], color=colour, linewidths=0, alpha=0.7
            )
            line = {"class": kind, "network": one.network, "method": one.said["words"], "density": one.density}
            line["steps"] = one.steps
            table.append({**line, "compression": one.ratio, "more_steps": exp(one.value) - 1, "at_least": one.at_least})
        axis.set(xscale="log", xlabel="compression")
        axis.set_xlim(1, max(4, exp(last)))
        axis.set_xticks(*_within(TICKS, max(4, exp(last))))
        axis.minorticks_off()
        axis.set_title(kind, loc="left", fontweight="bold", fontsize=8)
        _in_shares(axis)
    for first in axes[:, 0]:
        first.set_ylabel("extra steps")
    last = [words for words in ("longer training", "at least") if words in keys]
    order = [*(words for words in keys if words not in last), *last]
    canvas.legend([keys[words] for words in order], order, loc="outside upper center", ncols=4, columnspacing=1.2)
    said = caption_text([origin([row for one in found for row in one.rows], "means over")], canvas.get_figwidth())
    say_origin(canvas, said)
    return canvas, table


def _in_shares(axis: Axes) -> None:
    axis.set_yscale("symlog", linthresh=SHARES[1])
    axis.set_ylim(-SHARES[1], 1.2 * SHARES[-1])
    axis.set_yticks(SHARES, [f"{share:+.0%}" for share in SHARES])
    axis.minorticks_off()
    axis.grid()


def _within(ticks: Sequence[int], most: float) -> tuple[list[int], list[str]]:
    there = [tick for tick in ticks if tick <= most]
    return there, [f"{tick}x" for tick in there]


def _steps_finding(rows: list[Row]) -> str:
    """Return for each class what its curve says of TRAIN_STEPS at its ends, with the interval."""
    found = [one for one in records(rows) if one.decides]
    if not found:
        return "no method was run beside dense training"
    law, parts = fitted(found), []
    for kind, curve in law["classes"].items():
        for ratio in dict.fromkeys((exp(curve["log_compression"][0]), exp(curve["log_compression"][-1]))):
            low, middle, high = (exp(one) - 1 for one in log_steps(law, kind, "", "", ratio, None, TRAIN_STEPS))
            parts.append(f"{kind} at {ratio:.3g}x {more(middle)} steps ({between(low, high)})")
    return f"over {TRAIN_STEPS:,} steps: {'; '.join(parts)}"


EXTRA_STEPS = Figure(
    "auto.extra_steps",
    "extra steps over dense training, by class of method and compression",
    _extra_steps,
    about=(),
    needs={"experiment": EXPERIMENTS.__contains__, "evaluate": True},
    said=_steps_finding,
    command="ssfx run experiment=long_quality",
    notes=(
        "No paper's figure. A mark is the mean over seeds of one method in one training; orange ones never reached "
        "half of the qualities of dense training, and stand at what they took at least; green ones are of longer "
        "trainings. Curves are of no family in particular and of the usual batch; marks of larger batches lie higher. "
        "Grey holds 80 % of networks left out.",
    ),
)


# ---- How extra steps grow with the batch -----------------------------------------------------------------------------

PANELS = {"topk": "top-k, density 0.01", "powersgd": "PowerSGD, rank 4"}
"""Compressors that have a panel; the table of docs/workloads.md has all."""
MARKS = {2: "v", 4: "o", 8: "s", 16: "D", 64: "P"}
"""By the number of ranks."""
BATCHES = (32, 128, 512, 2048)
"""Ticks."""


def _batch(figure: Figure, rows: list[Row]) -> Picture | None:
    """Return a panel for each method: extra steps over the batch of all ranks, a line a task, a mark a record."""
    groups = _by_batch(rows)
    if not groups:
        return None
    tasks = sorted({task for task, _ in groups})
    canvas, axes = subplots(1, len(PANELS), figsize=(COLUMN_IN * 2, 4.0), sharex=True, sharey=True)
    table: list[dict[str, Any]] = []
    keys: dict[str, Any] = {}
    for (name, words), axis in zip(PANELS.items(), axes[0], strict=True):
        for number, task in enumerate(tasks):
            own = groups.get((task, name), [])
            if own:
                by_batch = grouped(own, lambda one: one.batch)
                line = sorted(
                    (batch, exp(median(one.value for one in several)) - 1) for batch, several in by_batch.items()
                )
                (keys[task],) = axis.plot(*zip(*line, strict=True), color=f"C{number}", linewidth=1.0)
            for one in own:
                ranks, more_steps = one.rows[0].case.world_size, exp(one.value) - 1
                axis.scatter(
                    [one.batch], [more_steps], marker=MARKS.get(ranks, "x"), s=22, color=f"C{number}", zorder=3
                )
                table.append(
                    {"task": task, "method": name, "ranks": ranks, "batch": one.batch, "more_steps": more_steps}
                )
        axis.set(xscale="log", xlabel="tokens or images a step, of all ranks")
        axis.set_xticks(BATCHES, [f"{batch:,}" for batch in BATCHES], minor=False)
        axis.set_title(words, loc="left", fontweight="bold")
        _in_shares(axis)
    axes[0][0].set_ylabel("extra steps")
    for ranks in sorted({line["ranks"] for line in table}):
        keys[f"{ranks} ranks"] = axes[0][0].scatter([], [], marker=MARKS.get(ranks, "x"), s=22, color="grey")
    canvas.legend(keys.values(), keys.keys(), loc="outside upper center", ncols=2, columnspacing=1.2)
    drawn = [row for own in groups.values() for one in own for row in one.rows]
    say_origin(canvas, caption_text([origin(drawn, "lines through the medians of")], canvas.get_figwidth()))
    return canvas, table


def _by_batch(rows: list[Row]) -> dict[tuple[str, str], list[Record]]:
    """Return the records of PANELS by training and compressor, of trainings with several batches."""
    own = [one for one in records(rows) if one.decides and one.compressor in PANELS and one.density in (None, 0.01)]
    groups = grouped(
        [one for one in own if one.scheme in ("per_tensor", one.compressor)],
        lambda one: (setting_of(one.rows[0]), one.compressor),
    )
    return {key: several for key, several in groups.items() if len({one.batch for one in several}) > 1}


def _batch_finding(rows: list[Row]) -> str:
    """Return the exponent of the batch in the curves, and what the figure shows of it."""
    groups = _by_batch(rows)
    if not groups:
        return "no method was run with several batches"
    exponent = fitted([one for one in records(rows) if one.decides])["batch"]["exponent"]
    runs = sum(len(one.rows) for own in groups.values() for one in own)
    return f"log(steps over dense) grows with the batch to the power of {exponent:.2f}, over all records; {runs} runs"


BATCH = Figure(
    "auto.batch",
    "extra steps of what keeps much of a gradient back, by the batch of all ranks",
    _batch,
    about=(),
    needs={"experiment": EXPERIMENT, "evaluate": True},
    said=_batch_finding,
    notes=(
        "No paper's figure. A mark is the mean over seeds, beside dense training of the same ranks and batch; a line "
        "goes through the medians of a task. Different marks at one batch tell ranks from batch.",
    ),
)
