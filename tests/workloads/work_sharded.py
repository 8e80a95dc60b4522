"""What the ranks run: cases whose model is shared among them by fully_shard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from workloads.fakes import make_case
from workloads.work import Interrupted

import ssfx
from ssfx.core.case import Case
from ssfx.lab.workloads.record import StepRecord
from ssfx.lab.workloads.sharded import ShardedExchange
from ssfx.lab.workloads.train import train


def run(
    group: Any, rank: int, world: int, folder: str, changes: dict[str, Any], stop_at: int | None, bad_step: int | None
) -> dict[str, Any] | None:
    """Train a case, as a worker does; return what came of it, None where it was interrupted.

    In step `bad_step` the loss of rank 1 is NaN.
    """
    case: Case = make_case(world_size=world, **changes)
    records: list[StepRecord] = []
    made: list[Any] = []

    def on_step(record: StepRecord) -> None:
        records.append(record)
        if record.step == stop_at:
            raise Interrupted

    def attach(model: Any, optimizer: Any, **options: Any) -> Any:
        found = ssfx.attach(model, optimizer, **options)
        made[:] = [found if isinstance(found, ssfx.Sync) else ShardedExchange(found, model, case), model]
        if bad_step is not None and rank == 1:
            model.register_forward_hook(lambda *_: spoilt(_[2]) if len(records) == bad_step else None)
        return made[0]

    def spoilt(out: torch.Tensor) -> torch.Tensor:
        return out * float("nan")

    try:
        result = train(case, on_step, attach, checkpoint_dir=Path(folder))
    except Interrupted:
        made[0].detach()
        return None
    weights = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in made[1].parameters()]
    dist.barrier()
    return {
        "result": result, "losses": {one.step: one.loss for one in records}, "sent": records[-1].sent_bytes,
        "skipped": [one.step for one in records if one.skipped], "points": [one.evaluated for one in records],
        "finite": all(bool(torch.isfinite(w).all()) for w in weights),
    }  # fmt: skip
