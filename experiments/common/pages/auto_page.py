"""The generated parts of docs/auto.md: a plan that explains itself, methods, and auto beside other schemes."""

from collections.abc import Sequence
from itertools import groupby
from math import exp, inf, isfinite
from pathlib import Path
from statistics import median

from experiments.common.evaluation.time_to_quality import TimeToQuality, time_to_quality, way
from experiments.common.pages.markdown import none_yet, table
from ssfx.config.plans import plan_of, resolve_plan
from ssfx.core.files import loads, read
from ssfx.core.paths import reference_dir
from ssfx.core.rows import Row
from ssfx.schemes.search.auto_why import why_lines
from ssfx.schemes.search.extra_steps import MORE_STEPS, TRAIN_STEPS, between, curves, log_steps, more

ASKED = ("model=bert_large", "cluster=64gpu", "cluster.inter.gbps=25", "scheme=auto", "density=0.01")
"""The command on the page."""


def why_block() -> str:
    """Return the command and what it prints."""
    planned = resolve_plan(ASKED)
    plan, profile, costs = plan_of(planned)
    assert not isinstance(costs, str)
    lines = why_lines(planned.model, planned.cluster.name, plan, profile, costs, planned.parts.plan_options)
    return "\n".join(["```", f"$ ssfx plan {' '.join(ASKED)} --why", *lines, "```"])


COMPRESSIONS = (2, 4, 7, 16, 32, 50, 500)
"""At which the curves are said; only those within 1.5 times of what was recorded of a class."""


def steps_block() -> str:
    """Return what the curves say of each class at a few compressions, with the usual batch, over any network.

    Of trainings as long as most records, and of TRAIN_STEPS, of which the interval and what is allowed are.
    """
    law, lines = curves(), []
    steps = (law["steps"]["usual"], TRAIN_STEPS)
    for kind, found in law["classes"].items():
        least, most = (exp(one) for one in (found["log_compression"][0], found["log_compression"][-1]))
        for ratio in (one for one in COMPRESSIONS if least / 1.5 <= one <= 1.5 * most):
            early, late = ([exp(one) - 1 for one in log_steps(law, kind, "", "", ratio, None, n)] for n in steps)
            low, middle, high = late
            allowed = [name for name, limit in MORE_STEPS.items() if kind == "sums in 16 bits" or high <= limit]
            runs = f"{found['runs']} of {found['networks']} networks"
            said = (kind, runs, f"{ratio}x", more(early[1]), more(middle), between(low, high))
            lines.append((*said, ", ".join(allowed) or "none"))
    heads = (f"more over {steps[0]:,} steps", f"over {steps[1]:,}")
    return table(("class", "runs", "compression", *heads, "80 %", "allowed by quality"), lines)


EXPERIMENT = "auto_to_target"
RECORD = "auto_benchmark.json"
TARGET_HEADER = ("task", "scheme", "at the target", "steps", "ms a step", "steps x ms (s)", "with planning (s)")


def auto_target_block(rows: Sequence[Row]) -> str:
    """Return a table: medians over seeds of steps, of a step's time, of both multiplied, and of what it really took."""
    own = [row for row in rows if row.case.experiment == EXPERIMENT]
    if not own:
        return none_yet(f"ssfx run experiment={EXPERIMENT}")
    found = sorted(time_to_quality(own, own).values(), key=lambda one: (one.model, _time_s(one)))
    tasks = [list(own_task) for _, own_task in groupby(found, key=lambda one: one.model)]
    behind = [min(_time_s(one) for one in task if one.scheme.startswith("auto")) / _time_s(task[0]) for task in tasks]
    hardware = ", ".join(sorted({row.origin.hardware for row in own}))
    return (
        f"Emulated on {hardware}, four hosts at 1 Gbit/s, medians of {max(one.runs for one in found)} seeds, the "
        "fastest first. Without what planning and trials take once, auto takes "
        f"{min(behind):.2f} to {max(behind):.2f} times as long as the fastest.\n\n"
        + table(TARGET_HEADER, [_cells(one, own) for one in found])
    )


def _time_s(one: TimeToQuality) -> float:
    return inf if one.time_s is None else one.time_s.value


def _cells(one: TimeToQuality, rows: Sequence[Row]) -> tuple[str, ...]:
    runs = [row for row in rows if (row.case.model, way(row.case)) == (one.model, one.scheme)]
    step_ms = 1e3 * median(row.metrics["iteration_s"] or 0.0 for row in runs)
    cells = (one.model, one.scheme, f"{one.reached} of {one.runs}")
    if not isfinite(one.steps.value):
        return *cells, "", f"{step_ms:.1f}", "", ""
    took_s = median(inf if (s := row.metrics["time_to_target_s"]) is None else s for row in runs)
    return *cells, f"{one.steps.value:.0f}", f"{step_ms:.1f}", f"{_time_s(one):.2f}", f"{took_s:.2f}"


def points_block(folder: Path | None = None) -> str:
    """Return what benchmarks/auto.py found at its points, by budget."""
    path = (folder or reference_dir()) / RECORD
    if not path.exists():
        return none_yet(f"python benchmarks/auto.py --json results/reference/{RECORD}", "Nothing is", "it")
    record = read(path, loads)
    points = [dict(zip(record["columns"], line, strict=True)) for line in record["points"]]
    lines = []
    for budget in dict.fromkeys(one["budget"] for one in points):
        own = [one for one in points if one["budget"] == budget]
        cells = [budget, str(len(own))]
        for other in ("over the best other", "over dense 16 bits"):
            ratios = [one[other] for one in own]
            cells.append(f"{sum(round(ratio, 2) <= 1 for ratio in ratios) / len(ratios):.1%} (worst {max(ratios):.3f})")
        between = [1 / one["over ssfusion_oi"] for one in own if 5 <= one["gbps"] <= 100]
        lines.append((*cells, f"{median(between):.2f} x"))
    header = ("budget", "points", "at most the best other scheme", "at most dense 16 bits", "as fast as SSFusion-(O+I)")
    return (
        f"{table(header, lines)}\n\nSimulated, {record['date'][:10]}, commit {record['code']['commit'][:7]}. The last "
        "column is a median over 5 to 100 Gbit/s; under a quality SSFusion has density 0.01, which has no such bound."
    )
