"""The generated parts of docs/workloads.md about long runs: extra steps, and predicted times beside real ones."""

import math
from collections.abc import Sequence
from math import exp, isfinite

from experiments.common.evaluation.time_to_quality import time_to_quality, way
from experiments.common.pages.markdown import none_yet, table
from experiments.common.validation.scores import Pair, score
from ssfx.core.rows import Row
from ssfx.lab.calibration.extra_steps import AGREE, Record, records
from ssfx.lab.calibration.long_runs import EXPERIMENT, best_so_far, setting_of
from ssfx.schemes.search.extra_steps import more
from ssfx.schemes.search.recorded_network import batch_text, in_words

HEADER = ("method", "training", "ranks, batch", "compression", "runs", "best quality", "more steps", "never reached")


def long_runs_block(rows: Sequence[Row]) -> str:
    """Return which trainings decide nothing and why, and a line for each method, training, ranks and batch."""
    found = records(rows)
    if not found:
        return none_yet(f"ssfx run experiment={EXPERIMENT}")
    every, deciding = ({setting_of(one.rows[0]) for one in found if one.decides >= known} for known in (False, True))
    silent = sorted(every - deciding)
    said = (
        f"Marked - and not fitted: methods recorded of one network, and trainings without two dense seeds that end "
        f"within {100 * AGREE:.0f} % of each other in the mean ({'; '.join(silent)}).\n\n"
        if silent
        else ""
    )
    return said + table(HEADER, list(map(_cells, found)))


def _cells(one: Record) -> tuple[str, ...]:
    row, missed = one.rows[0], max(logs.unreached for logs in one.logs)
    kept = "" if one.density is None else f" of {one.density:g}"
    family = in_words(one.trained.family, one.trained.optimizer)
    return (
        f"{one.said['words']}{kept}",
        f"{setting_of(row)} ({family})",
        f"{row.case.world_size}, {batch_text(one.trained.family, one.batch)}",
        f"{one.ratio:.3g}x",
        f"{len(one.rows)}" if one.decides else f"{len(one.rows)} -",
        " and ".join(map(_quality, one.rows)),
        f"{'over ' if one.at_least else ''}{more(exp(one.value) - 1)}",
        f"{100 * missed:.0f} %",
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
