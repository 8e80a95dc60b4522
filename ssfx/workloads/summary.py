"""From the step records of one rank to the metrics of its run. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ssfx.case import Case
from ssfx.lazy import numpy as np
from ssfx.workloads.record import StepRecord

MEDIANS = (
    "iteration_s", "forward_s", "backward_s", "sparsify_s", "exposed_comm_s", "comm_s", "step_s", "other_s",
    "contributed_bytes", "sent_bytes",
)  # fmt: skip
MEANS = ("achieved_density", "tensor_missing_rate")
LOSS_STEPS = 10
"""The metric `loss` is the mean over so many last measured steps."""


def read_records(run_dir: Path, rank: int) -> list[StepRecord]:
    """Return one record per step from all attempts in `run_dir`, by step; where attempts overlap, the latest counts.

    A last line that a killed rank did not finish is left out.
    """
    attempts = sorted(run_dir.glob("attempt-*"), key=lambda path: int(path.name.removeprefix("attempt-")))
    records: dict[int, StepRecord] = {}
    for path in (attempt / f"rank{rank}.jsonl" for attempt in attempts):
        if path.exists():
            whole, _, _ = path.read_text().rpartition("\n")
            for line in filter(None, whole.split("\n")):
                record = StepRecord.from_json(line)
                records[record.step] = record
    return [records[step] for step in sorted(records)]


def summarise(records: Sequence[StepRecord], case: Case) -> tuple[dict[str, float | None], dict[str, list[float]]]:
    """Return (metrics, samples) of a run; statistics leave out the case's warm-up steps and are None without any step.

    `samples` holds the raw times and bytes of the measured steps, by metric name.
    """
    measured = [record for record in records if record.step >= case.warmup_steps]
    samples: dict[str, list[float]] = {name: [getattr(record, name) for record in measured] for name in MEDIANS}
    metrics: dict[str, float | None] = {name: _median(values) for name, values in samples.items()}
    iterations = samples["iteration_s"]
    metrics["iteration_p10_s"] = float(np.percentile(iterations, 10)) if iterations else None
    metrics["iteration_p90_s"] = float(np.percentile(iterations, 90)) if iterations else None
    iteration_s = metrics["iteration_s"]
    per_step = case.batch_size * case.accumulate * case.world_size
    metrics["throughput_samples_per_s"] = per_step / iteration_s if iteration_s else None
    for name in MEANS:
        metrics[name] = _mean([getattr(record, name) for record in measured])
    metrics["loss"] = _mean([record.loss for record in measured[-LOSS_STEPS:]])
    metrics["skipped_steps"] = float(sum(record.skipped for record in records))
    return metrics, samples


def _median(values: Sequence[float]) -> float | None:
    return float(np.median(values)) if values else None


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean, None if there is no value or one of them is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None
