"""What the pool's ranks run; see test_ranks.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from workloads.fakes import make_case

from ssfx.workloads.checkpoint import Checkpoints
from ssfx.workloads.run import run_case
from ssfx.workloads.train import average_buffers


class Interrupted(Exception):
    pass


def average(group: Any, rank: int, world: int) -> list[float]:
    model = torch.nn.BatchNorm1d(2)
    assert model.running_mean is not None
    model.running_mean.fill_(float(rank))
    average_buffers(model, world, group)
    return model.running_mean.tolist()


def save_and_load(group: Any, rank: int, world: int, folder: str) -> tuple[int, int, tuple[str, ...]]:
    checkpoints = Checkpoints(Path(folder), {}, rank=rank, world_size=world, group=group)
    for step in (1, 2, 3):
        checkpoints.save(step, {"mine": 10 * step + rank})
    torch.distributed.barrier(group)
    if rank == 1:
        (Path(folder) / "step-3" / "rank1.pt").write_bytes(b"torn")
    torch.distributed.barrier(group)
    loaded = checkpoints.load()
    assert loaded.state is not None
    return loaded.step, loaded.state["mine"], loaded.skipped


def run(
    group: Any, rank: int, world: int, folder: str, attempt: int, changes: dict[str, Any], stop_at: int | None
) -> dict[str, Any] | None:
    case = make_case(world_size=world, **changes)
    run_dir = Path(folder)
    attempt_dir = run_dir / f"attempt-{attempt}"
    attempt_dir.mkdir(parents=True, exist_ok=True)
    with (attempt_dir / f"rank{rank}.jsonl").open("w") as log:

        def on_step(record: Any) -> None:
            log.write(json.dumps(record) + "\n")
            log.flush()
            if record["step"] == stop_at:
                raise Interrupted

        try:
            return run_case(
                case, run_dir=run_dir, attempt_dir=attempt_dir, rank=rank, world_size=world, on_step=on_step,
                set_phase=lambda _phase: None,
            )  # fmt: skip
        except Interrupted:
            return None
