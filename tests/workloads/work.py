"""What the pool's ranks run; see test_ranks.py."""

import hashlib
from pathlib import Path
from typing import Any

import torch
from workloads.fakes import make_case

import ssfx
from ssfx.collectives.torch_comm import TorchComm
from ssfx.core.errors import RunError
from ssfx.lab.workloads.checkpoint import Checkpoints
from ssfx.lab.workloads.record import StepRecord
from ssfx.lab.workloads.train import averaged_buffers, train


class Interrupted(Exception):
    pass


def average(group: Any, rank: int, world: int) -> tuple[list[float], list[float]]:
    model = torch.nn.BatchNorm1d(2)
    assert model.running_mean is not None
    model.running_mean.fill_(float(rank))
    with averaged_buffers(model, world, TorchComm(group)):
        inside = model.running_mean.tolist()
    return inside, model.running_mean.tolist()


def save_and_load(group: Any, rank: int, world: int, folder: str) -> tuple[int, int, tuple[str, ...]]:
    checkpoints = Checkpoints(Path(folder), {}, rank=rank, world_size=world, comm=TorchComm(group))
    for step in (1, 2, 3):
        checkpoints.save(step, {"mine": 10 * step + rank})
    torch.distributed.barrier(group)
    if rank == 1:
        (Path(folder) / "step-3" / "rank1.pt").write_bytes(b"torn")
    torch.distributed.barrier(group)
    loaded = checkpoints.load()
    assert loaded.state is not None
    return loaded.step, loaded.state["mine"], loaded.skipped


def save_on_all_ranks(group: Any, rank: int, world: int, folder: str, numel: int, of_rank_1: str = "") -> str:
    """Return why the checkpoint of step 4 cannot be written; rank 1 may have a folder of its own for it."""
    directory = Path(of_rank_1 if rank and of_rank_1 else folder)
    checkpoints = Checkpoints(directory, {}, rank=rank, world_size=world, comm=TorchComm(group))
    try:
        checkpoints.save(4, {"weights": torch.zeros(numel)})
    except RunError as error:
        return str(error)
    return "written"


def run(
    group: Any, rank: int, world: int, folder: str, changes: dict[str, Any], stop_at: int | None
) -> dict[str, Any] | None:
    losses = {}
    points = {}

    def on_step(record: StepRecord) -> None:
        losses[record.step] = record.loss
        points[record.step] = record.evaluated
        if record.step == stop_at:
            raise Interrupted

    attached: list[ssfx.Sync] = []

    def attach(*arguments: Any, **options: Any) -> ssfx.Sync:
        attached.append(ssfx.attach(*arguments, **options))
        return attached[0]

    try:
        result = train(make_case(world_size=world, **changes), on_step, attach, checkpoint_dir=Path(folder))
    except Interrupted:
        attached[0].detach()
        return None
    weights = b"".join(value.numpy().tobytes() for value in attached[0]._model.state_dict().values())
    return {
        "result": result,
        "losses": losses,
        "plan": attached[0].plan.digest,
        "points": points,
        "weights": hashlib.sha256(weights).hexdigest(),
    }
