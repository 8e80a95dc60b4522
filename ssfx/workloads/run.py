"""What the worker process calls for one case: the training loop on the real runtime, and the files it leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import ssfx
from ssfx.case import Case
from ssfx.results.files import write_atomic
from ssfx.runtime.sync import Sync
from ssfx.workloads.summary import read_records, summarise
from ssfx.workloads.train import train


def run_case(
    case: Case,
    *,
    run_dir: Path,
    attempt_dir: Path,
    rank: int,
    world_size: int,  # noqa: ARG001 (part of what the worker passes; the case has it too)
    on_step: Callable[[Mapping[str, Any]], None],
    set_phase: Callable[[str], None],
) -> dict[str, Any]:
    """Train `case` on this rank and return its metrics, samples, data set fingerprint and plan digest.

    Rank 0 writes plan.json, profile.json and, if the plan needed them, costs.json to `attempt_dir`; every rank writes
    trace-rank<r>.json when the case asks for it. Metrics cover all attempts of the run (ssfx.workloads.summary).
    """
    attached: list[Sync] = []

    def attach(*arguments: Any, **options: Any) -> Sync:
        attached.append(partial(ssfx.attach, trace=case.trace)(*arguments, **options))
        return attached[0]

    result = train(
        case, lambda record: on_step(asdict(record)), attach, checkpoint_dir=run_dir / "checkpoint", set_phase=set_phase
    )
    (sync,) = attached
    if rank == 0:
        write_atomic(attempt_dir / "plan.json", sync.plan.to_json())
        write_atomic(attempt_dir / "profile.json", sync.profile.to_json())
        if sync.costs is not None:
            write_atomic(attempt_dir / "costs.json", sync.costs.to_json())
    if case.trace:
        sync.tracer.save(attempt_dir / f"trace-rank{rank}.json")
    metrics, samples = summarise(read_records(run_dir, rank), case)
    return {
        "metrics": metrics | result.metrics,
        "samples": samples,
        "dataset_fingerprint": result.data_fingerprint,
        "plan_digest": sync.plan.digest,
        "first_step": result.first_step,
        "notes": list(result.notes),
    }
