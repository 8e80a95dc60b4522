"""What scheme=auto chooses, and what a quality of it rests on."""

from dataclasses import replace
from functools import cache
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
from ssfx.lab.calibration.batch_growth import batch_growth, extra_by_batch
from ssfx.lab.calibration.step_law import (
    EXPERIMENT,
    StepLaw,
    at_dense_rate,
    at_usual_batch,
    batch_of,
    dense_runs,
    extra_steps,
    long_rows,
    method,
    place,
    step_laws,
    task_of,
)
from ssfx.perf_model.operator_counts import model_work
from ssfx.perf_model.plan_costs import costs_on
from ssfx.perf_model.target import profile_for
from ssfx.planning.plan import Plan
from ssfx.schemes.make_plan import make_plan
from ssfx.schemes.search.auto_budget import EIGHT_BITS, FOUR_BITS
from ssfx.schemes.search.auto_steps import MOST_UNREACHED
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


# ---- Steps that methods take to what dense training reaches, over thousands of steps ---------------------------------

SHOWN = {
    "per_tensor/qsgd(bits=4,bucket=48,norm=max)": ("four bits", "#4292c6"),
    "powersgd": ("PowerSGD, rank 4", "#74c476"),
    "per_tensor/topk@0.05": ("top-k, density 0.05", "#fdae6b"),
    "per_tensor/topk@0.01": ("top-k, density 0.01", "#e6550d"),
}
"""By the name of `step_law.method`: words and colour. The table of docs/workloads.md has all methods."""


def _step_law(figure: Figure, rows: list[Row]) -> Picture | None:
    """Return a panel for each task; nothing where no method was run beside dense training."""
    long = at_usual_batch(at_dense_rate(long_rows(rows)))
    laws = _laws(long)
    if not laws:
        return None
    tasks = sorted({task for _, task in laws})
    table: list[dict[str, Any]] = []
    columns = min(3, len(tasks))
    lines = -(-len(tasks) // columns)
    size_in = (COLUMN_IN * (2 if columns > 1 else 1.7), 0.5 + 1.85 * lines)
    canvas, axes = subplots(lines, columns, figsize=size_in)
    for unused in axes.flat[len(tasks) :]:
        unused.set_axis_off()
    keys: dict[str, Any] = {}
    for task, axis in zip(tasks, axes.flat, strict=False):
        longest = max(row.case.steps for row in long if task_of(row) == task)
        (keys["dense"],) = axis.plot([0, longest], [0, longest], color="black", linewidth=0.8, linestyle="--")
        for name, (words, colour) in SHOWN.items():
            points = _levels(task, name, long)
            if not points:
                continue
            for reached, mark in ((True, "o"), (False, "x")):
                shown = [(at, steps) for at, steps, there in points if there is reached]
                at, steps = [x for x, _ in shown], [y for _, y in shown]
                axis.scatter(at, steps, s=4, marker=mark, color=colour, linewidths=0.6)
            if (law := laws.get((name, task))) and law.unreached <= MOST_UNREACHED:
                ends = [1.0, float(longest)]
                fitted = [law.delay_steps + (1 + law.factor) * end for end in ends]
                (keys[words],) = axis.plot(ends, fitted, color=colour, linewidth=1.4)
            table += [
                {"task": task, "method": name, "dense_steps": x, "steps": y, "reached": there} for x, y, there in points
            ]
        axis.set_title(task, loc="left", fontweight="bold")
        axis.set(xlim=(0, longest), ylim=(0, longest), xlabel="steps of dense training to a quality")
        axis.grid()
    for first in axes[:, 0]:
        first.set_ylabel("steps of the method to it")
    canvas.legend(keys.values(), keys.keys(), loc="outside upper center", ncols=5, columnspacing=1.2)
    said = caption_text([origin(long)], canvas.get_figwidth())
    say_origin(canvas, said)
    return canvas, table


def _laws(rows: list[Row]) -> dict[tuple[str, str], StepLaw]:
    """Return the law of each method that is shown and task, at the rate of most of its dense runs."""
    found = step_laws(
        at_dense_rate(long_rows(rows)),
        lambda row: f"{name} on {task_of(row)}" if (name := method(row)) in SHOWN else "",
    )
    names = [label.partition(" on ") for label in found]
    return {(name, task): law for (name, _, task), law in zip(names, found.values(), strict=True)}


def _step_finding(rows: list[Row]) -> str:
    """Return for each method the range over tasks of the factor of its extra steps, and the tasks that say none."""
    parts = []
    laws, silent = _laws(rows), _silent(rows)
    for name, (words, _) in SHOWN.items():
        known = [law.factor for (one, _), law in laws.items() if one == name and law.unreached <= MOST_UNREACHED]
        if known:
            unknown = [said for (one, _), said in silent.items() if one == name]
            but = f" (but {'; '.join(unknown)})" if unknown else ""
            parts.append(f"{words} {min(known):+.0%} to {max(known):+.0%} steps by task{but}")
        else:
            parts += [f"{words}: {said}" for (one, _), said in silent.items() if one == name]
    return "; ".join(parts) or "no method was run beside dense training"


def _silent(rows: list[Row]) -> dict[tuple[str, str], str]:
    """Return the methods and tasks of which more than MOST_UNREACHED of the levels were never reached, with words."""
    long = at_usual_batch(at_dense_rate(long_rows(rows)))
    found = {}
    for name, task in sorted({(method(row), task_of(row)) for row in long if method(row) in SHOWN}):
        own = [row for row in long if (method(row), task_of(row)) == (name, task) and place(row) in dense_runs(long)]
        levels = [reached for _, _, reached in _levels(task, name, long)]
        if levels and (missed := levels.count(False) / len(levels)) > MOST_UNREACHED:
            case = own[0].case
            found[name, task] = (
                f"unknown on {case.model}, where {len(own)} run{'s' * (len(own) > 1)} on {case.world_size} ranks with "
                f"{case.optimizer} never reached {missed:.0%} of the levels in {case.steps:,} steps"
            )
    return found


def _levels(task: str, name: str, rows: list[Row]) -> list[tuple[float, float, bool]]:
    """Return steps of dense training, steps of the method, and whether it got there, of every level of every seed."""
    dense = dense_runs(rows)
    found = []
    for row in rows:
        if task_of(row) == task and method(row) == name and place(row) in dense:
            run = extra_steps(dense[place(row)], row)
            found += [(at, at + extra, True) for at, extra in run.pairs]
            found += [(at, at + extra, False) for at, extra in run.bounds]
    return found


STEP_LAW = Figure(
    "auto.step_law",
    "steps to a quality, by the steps that dense training takes to it",
    _step_law,
    about=(),
    needs={"experiment": EXPERIMENT, "evaluate": True},
    said=_step_finding,
    notes=(
        "No paper's figure. A dot is a level of quality that dense training reached for the first time, and a run of "
        "the method with the same seed that reached it; crosses were never reached, and stand at the end of the run. "
        "Lines are the fit of a task, a delay and a factor, where half of the levels were reached; the others are "
        "unknown, not zero.",
    ),
)


# ---- How extra steps grow with the batch -----------------------------------------------------------------------------

PANELS = ("per_tensor/topk@0.01", "powersgd")
"""Methods that have a panel; the table of docs/workloads.md has all."""
MARKS = {2: "v", 4: "o", 8: "s", 16: "D", 64: "P"}
"""By the number of ranks."""
BATCHES, SHARES = (32, 128, 512, 2048), (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
"""Ticks."""


def _batch(figure: Figure, rows: list[Row]) -> Picture | None:
    """Return a panel for each method: extra steps over the batch of all ranks, a line a task, a mark a run."""
    groups = {at: runs for at, runs in extra_by_batch(rows).items() if at[1] in PANELS}
    if not groups:
        return None
    tasks = sorted({task for task, _ in groups})
    canvas, axes = subplots(1, len(PANELS), figsize=(COLUMN_IN * 2, 3.0), sharex=True, sharey=True)
    table: list[dict[str, Any]] = []
    keys: dict[str, Any] = {}
    for name, axis in zip(PANELS, axes[0], strict=True):
        for number, task in enumerate(tasks):
            runs = groups.get((task, name), [])
            line = sorted(
                (batch, median(share for _, share in own))
                for batch, own in grouped(runs, lambda run: batch_of(run[0])).items()
            )
            if line:
                (keys[task],) = axis.plot(*zip(*line, strict=True), color=f"C{number}", linewidth=1.0)
            for row, share in runs:
                ranks, batch = row.case.world_size, batch_of(row)
                axis.scatter([batch], [share], marker=MARKS.get(ranks, "x"), s=22, color=f"C{number}", zorder=3)
                table.append({"task": task, "method": name, "ranks": ranks, "batch": batch, "more_steps": share})
        axis.set(xscale="log", yscale="log", xlabel="tokens or images a step, of all ranks")
        axis.set_xticks(BATCHES, [f"{batch:,}" for batch in BATCHES], minor=False)
        axis.set_yticks(SHARES, [f"{share:.0%}" for share in SHARES], minor=False)
        axis.minorticks_off()
        axis.set_title(SHOWN[name][0], loc="left", fontweight="bold")
        axis.grid()
    axes[0][0].set_ylabel("extra steps over dense training")
    for ranks in sorted({line["ranks"] for line in table}):
        keys[f"{ranks} ranks"] = axes[0][0].scatter([], [], marker=MARKS.get(ranks, "x"), s=22, color="grey")
    canvas.legend(keys.values(), keys.keys(), loc="outside upper center", ncols=3, columnspacing=1.2)
    drawn = [row for runs in groups.values() for row, _ in runs]
    say_origin(canvas, caption_text([origin(drawn, "lines through the medians of")], canvas.get_figwidth()))
    return canvas, table


def _batch_finding(rows: list[Row]) -> str:
    found = batch_growth(rows)
    if found is None:
        return "no method was run with several batches"
    return (
        f"extra steps grow with the batch to the power of {found.exponent:.2f} ({found.low:.2f} to {found.high:.2f} "
        f"for each method and task alone), by {found.runs} runs of {found.tasks} tasks"
    )


BATCH = Figure(
    "auto.batch",
    "extra steps of what keeps much of a gradient back, by the batch of all ranks",
    _batch,
    about=(),
    needs={"experiment": EXPERIMENT, "evaluate": True},
    said=_batch_finding,
    notes=(
        "No paper's figure. A mark is a run, beside dense training of its seed, ranks and batch; a line goes through "
        "the medians of a task. Different marks at one batch tell ranks from batch.",
    ),
)
