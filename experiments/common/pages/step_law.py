"""The generated parts of docs/workloads.md about long runs: extra steps, and predicted times beside real ones."""

import math
from collections.abc import Sequence
from math import isfinite

from experiments.common.evaluation.time_to_quality import time_to_quality, way
from experiments.common.pages.markdown import none_yet, table
from experiments.common.validation.scores import Pair, score
from ssfx.core.rows import Row
from ssfx.lab.calibration.batch_growth import BatchGrowth, batch_growth
from ssfx.lab.calibration.step_law import (
    EXPERIMENT,
    FEWEST_RUNS,
    Interval,
    StepLaw,
    at_dense_rate,
    batch_of,
    best_so_far,
    dense_runs,
    extra_steps,
    is_dense,
    law_of,
    long_rows,
    method,
    place,
    setting_of,
    step_laws,
    task_of,
)
from ssfx.perf_model.operator_counts import model_work
from ssfx.schemes.search.auto_steps import MOST_UNREACHED
from ssfx.schemes.search.recorded_network import family_of

APART = " on "
HORIZONS = (100, 1000, 10_000)
HEADER = (
    "method",
    "task",
    "compression",
    "runs",
    "delay, steps",
    "factor",
    *(f"at {steps:,} steps" for steps in HORIZONS),
    "levels never reached",
)


def step_law_block(rows: Sequence[Row]) -> str:
    """Return which tasks were trained for how long, and the law of each method."""
    # A law holds for a family of networks and an optimizer together.
    kinds = {
        setting_of(row): f"{family_of(model_work(row.case.model).tensors)} with {row.case.optimizer}"
        for row in rows
        if row.case.experiment == EXPERIMENT
    }
    laws = step_laws(rows, lambda row: f"{kinds[setting_of(row)]}{APART}{method(row)}{APART}{setting_of(row)}")
    if not laws:
        return none_yet(f"ssfx run experiment={EXPERIMENT}")
    tasks = sorted({f"{kinds[task]}: {task}" for law in laws.values() for task in law.tasks})
    longest = max(law.longest_steps for law in laws.values())
    few = (
        f" No interval is given of fewer than {FEWEST_RUNS} runs."
        if any(law.delay_interval is None for law in laws.values())
        else ""
    )
    sentence = (
        f"Tasks: {'; '.join(tasks)}; {longest:,} steps. Columns of more steps than that are extrapolated. Compression: "
        f"the gradient's bytes over those that a rank sent.{few}"
    )
    return f"{sentence}\n\n{table(HEADER, list(map(_cells, laws.values())))}"


def _cells(law: StepLaw) -> tuple[str, ...]:
    unreached, (_, *named) = f"{100 * law.unreached:.0f} %", law.method.split(APART)
    named += ["-" if law.compression is None else f"{law.compression:.3g}x", str(law.runs)]
    if law.unreached > MOST_UNREACHED:
        return *named, *("-" for _ in (*HORIZONS, "delay", "factor")), unreached
    return (
        *named,
        f"{law.delay_steps:+.0f}{_between(law.delay_interval, '.0f', 1)}",
        f"{100 * law.factor:+.1f} %{_between(law.factor_interval, '.1f', 100)}",
        *(f"{100 * law.more_steps(steps):+.1f} %" for steps in HORIZONS),
        unreached,
    )


def _between(interval: Interval | None, form: str, scale: float) -> str:
    if interval is None:
        return ""
    low, high = interval
    return f" ({scale * low:+{form}} to {scale * high:+{form}})"


VARIED_HEADER = ("method", "task", "ranks x batch", "rate", "best quality", "of dense", "more steps", "never reached")


def varied_block(rows: Sequence[Row]) -> str:
    """Return a line for each run of a method that a task was trained with on several ranks, batches, or rates.

    First stands how extra steps of error feedback grow with the batch. Each line stands beside dense training of its
    seed, ranks, batch and rate; dense training at another rate, beside that at the usual one.
    """
    long = long_rows(rows)
    dense = dense_runs(long)
    usual = {_of_seed(row): row for row in at_dense_rate(long) if is_dense(row)}
    beside = {row.run_id: usual.get(_of_seed(row)) if is_dense(row) else dense.get(place(row)) for row in long}
    runs: dict[tuple[str, str], list[Row]] = {}
    for row in long:
        if beside[row.run_id] not in (None, row):
            runs.setdefault((method(row), task_of(row)), []).append(row)
    settings = {at: {(*_size(row), row.case.lr) for row in own} for at, own in runs.items()}
    varied = {at: own for at, own in sorted(runs.items()) if is_dense(own[0]) or len(settings[at]) > 1}
    if not varied:
        return none_yet(f"ssfx run experiment={EXPERIMENT}")
    lines = []
    for (name, task), own in varied.items():
        for row in sorted(own, key=lambda row: (*_size(row), row.case.lr or 0.0, row.case.seed)):
            other = beside[row.run_id]
            assert other is not None
            found = extra_steps(other, row)
            delay, factor = law_of([found])
            missed = len(found.bounds) / (len(found.bounds) + len(found.pairs))
            told = "worse" if missed > MOST_UNREACHED else f"{100 * (delay / other.case.steps + factor):+.0f} %"
            qualities = (_quality(one) for one in (row, other))
            rate = setting_of(row).partition("rate ")[2]
            lines.append(
                (name, task, " x ".join(map(str, _size(row)[1:])), rate, *qualities, told, f"{100 * missed:.0f} %")
            )
    return f"{_growth(batch_growth(rows))}{table(VARIED_HEADER, lines)}"


def _of_seed(row: Row) -> tuple[object, ...]:
    return task_of(row), *_size(row), row.case.seed


def _size(row: Row) -> tuple[int, int, int]:
    """Return the batch of all ranks, the ranks, and the samples of each."""
    return batch_of(row), row.case.world_size, row.case.batch_size * row.case.accumulate


def _growth(found: BatchGrowth | None) -> str:
    if found is None:
        return ""
    return (
        f"Extra steps of what feeds errors back grow with the batch of all ranks, in tokens or images, to the power of "
        f"{found.exponent:.2f} ({found.low:.2f} to {found.high:.2f} for each method and task alone), by {found.runs} "
        f"runs of {found.tasks} task{'s' * (found.tasks != 1)} and {found.batch[0]:,} to {found.batch[1]:,} a step.\n\n"
    )


def _quality(row: Row) -> str:
    metric = str(row.case.target_metric)
    _, value = best_so_far(row, metric)[-1]
    return f"{value:.1f}" if metric == "perplexity" else f"{100 * value:.1f} %"


TIMES_HEADER = ("task", "scheme", "predicted s", "actual s", "range of the actual", "error")


def time_to_target_block(rows: Sequence[Row]) -> str:
    """Return how far predictions are off, and whether they order the schemes of a task, with a table of all."""
    pairs = predicted_times(rows)
    if not pairs:
        return none_yet(f"ssfx run experiment={REAL}")
    found = score(pairs)
    near = sum(abs(pair.error) <= 0.15 for pair in pairs)
    together = score([Pair("all", f"{pair.panel} {pair.label}", pair.predicted, pair.actual) for pair in pairs])
    sentence = (
        f"{near} of {len(pairs)} are predicted within 15 %; the mean error is {100 * found.mean:.0f} %, "
        f"Kendall's tau of all {len(pairs)} is {together.tau or 0.0:.2f}."
    )
    cells = {(row.case.model, way(row.case)) for row in rows if row.case.experiment == REAL}
    if missing := sorted(cells - {(pair.panel, pair.label) for pair in pairs}):
        named = ", ".join(f"{model} with {scheme}" for model, scheme in missing)
        sentence += f" Not among them: {named}, whose runs mostly miss the target."
    lines = [
        (
            pair.panel,
            pair.label,
            f"{pair.predicted:.2f}",
            f"{pair.actual:.2f}",
            f"{100 * pair.spread:.0f} %" if pair.spread is not None and isfinite(pair.spread) else "not all got there",
            f"{100 * pair.error:+.0f} %",
        )
        for pair in pairs
    ]
    return f"{sentence}\n\n{table(TIMES_HEADER, lines)}"


QUALITY, REAL = "time_to_quality", "time_to_target"
"""Experiments: where the steps come from, and which runs are predicted."""


def predicted_times(rows: Sequence[Row]) -> list[Pair]:
    """Return one pair a task and scheme of experiment=time_to_target: predicted and actual seconds to the target.

    Predicted is the median number of steps of `rows` of experiment=time_to_quality times the iteration time of the
    first repeat on the cluster. Actual is the median over the other repeats, whose seeds the prediction has not seen,
    and `spread` their range over it. A scheme that has no such run, or does not reach the target in most of them, is
    left out. All runs of a task have equally many samples a step.
    """
    quality = [row for row in rows if row.case.experiment == QUALITY]
    real = [row for row in rows if row.case.experiment == REAL]
    first = [row for row in real if row.case.repeat == 0]
    found = []
    for (model, scheme), one in time_to_quality(quality, first).items():
        times = sorted(
            math.inf if (seconds := row.metrics["time_to_target_s"]) is None else seconds
            for row in real
            if row.case.repeat and (row.case.model, way(row.case)) == (model, scheme)
        )
        if times and one.time_s is not None and math.isfinite(actual := times[len(times) // 2]):
            found.append(Pair(model, scheme, one.time_s.value, actual, spread=(times[-1] - times[0]) / actual))
    return sorted(found, key=lambda pair: (pair.panel, pair.actual))
