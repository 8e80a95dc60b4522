"""From step records to the curve of a run: quality and the state of the exchange over steps, time and bytes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from ssfx.core.case import Case
from ssfx.core.curves import POINTS
from ssfx.lab.workloads.metrics.tally import better
from ssfx.lab.workloads.record import StepRecord

Column = list[float | None]


def curve_of(records: Sequence[StepRecord]) -> dict[str, Column]:
    """Return the curve (see ssfx.core.curves) from the records of all steps of one rank, by step; {} without points.

    Of more than POINTS points, POINTS are kept, equally spaced and with the last one.
    """
    measured = [index for index, record in enumerate(records) if record.evaluated is not None]
    time_s = list(accumulate(record.iteration_s for record in records))
    sent_bytes = list(accumulate(record.sent_bytes for record in records))
    names = sorted({name for index in measured for name in records[index].evaluated or ()})
    curve: dict[str, Column] = {name: [] for name in ("step", "time_s", "sent_bytes", "loss", "density", *names)}
    before = 0
    for index in _thinned(measured):
        since, point = records[before : index + 1], records[index].evaluated or {}
        losses = [record.loss for record in since if record.loss is not None]
        curve["step"].append(records[index].step + 1)
        curve["time_s"].append(_digits(time_s[index]))
        curve["sent_bytes"].append(sent_bytes[index])
        curve["loss"].append(_digits(sum(losses) / len(losses)) if losses else None)
        curve["density"].append(_digits(sum(record.achieved_density for record in since) / len(since)))
        for name in names:
            value = point.get(name)
            curve[name].append(None if value is None else _digits(value))
        before = index + 1
    return curve if measured else {}


def target_metrics(case: Case, records: Sequence[StepRecord]) -> dict[str, float | None]:
    """Return steps and seconds until the case's target was first reached, None where it never was; {} without a target.

    Seconds are the sum of the iterations up to there, as measured; quality is known only where it was measured.
    """
    if case.target_metric is None or case.target_value is None:
        return {}
    for index, record in enumerate(records):
        value = (record.evaluated or {}).get(case.target_metric)
        if value is not None and better(case.target_metric, value, case.target_value):
            seconds = sum(one.iteration_s for one in records[: index + 1])
            return {"steps_to_target": record.step + 1, "time_to_target_s": seconds}
    return {"steps_to_target": None, "time_to_target_s": None}


def _thinned(indices: Sequence[int]) -> Sequence[int]:
    if len(indices) <= POINTS:
        return indices
    return [indices[round((i + 1) * len(indices) / POINTS) - 1] for i in range(POINTS)]


def _digits(value: float) -> float:
    return float(f"{value:.6g}")
