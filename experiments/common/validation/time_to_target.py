"""Predicted time to a target against runs that were really trained until they reached it."""

import math
from collections.abc import Sequence

from experiments.common.validation.scores import Pair
from ssfx.advice.time_to_quality import time_to_quality, way
from ssfx.core.rows import Row

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
