"""What the pool's ranks run: what attach and load_state_dict refuse."""

from collections.abc import Callable
from typing import Any

import torch
from runtime.models import Mlp, build, loss_of
from runtime.work_attach import SPARSE, Options, sgd
from runtime.work_guards import error_of
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ssfx


def refusal(group: Any, rank: int, world: int, case: str) -> str:
    """Return the text of the ConfigError that `case` raises on this rank."""
    return error_of(lambda: REFUSED[case](group, rank))


def _ddp_wrapped(group: Any, rank: int) -> None:
    model = DistributedDataParallel(build("mlp"), process_group=group)
    ssfx.attach(model, sgd(model.parameters()), process_group=group)


def _another_model(group: Any, rank: int) -> None:
    model = nn.Linear(4, 4 + (rank == 1))
    ssfx.attach(model, sgd(model.parameters()), process_group=group)


def _another_frozen_part(group: Any, rank: int) -> None:
    model = Mlp()
    model.frozen = nn.Linear(3, 3 + (rank == 1)).requires_grad_(False)
    ssfx.attach(model, sgd(model.parameters()), process_group=group)


def _sparse_gradient(group: Any, rank: int) -> None:
    model = nn.Embedding(10, 4, sparse=True)
    sync = ssfx.attach(model, sgd(model.parameters(), 0.0), process_group=group)
    try:
        model(torch.tensor([1, 2])).sum().backward()
    finally:
        sync.detach()


def _state_of(options: Options, model: nn.Module, change: Callable[[dict[str, Any]], None]) -> Callable[..., None]:
    def load(group: Any, rank: int) -> None:
        mine = build("mlp")
        sync = ssfx.attach(mine, sgd(mine.parameters()), process_group=group, **options)
        other = ssfx.attach(model, sgd(model.parameters()), process_group=group)
        state = other.state_dict()
        change(state)
        other.detach()
        try:
            sync.load_state_dict(state)
        finally:
            sync.detach()

    return load


def _inside_ddp(first: str) -> Callable[[Any, int], None]:
    def train(group: Any, rank: int) -> None:
        model = build("mlp")
        if first == "ddp":
            wrapped = DistributedDataParallel(model, process_group=group)
            sync = ssfx.attach(model, sgd(model.parameters()), process_group=group)
        else:
            sync = ssfx.attach(model, sgd(model.parameters()), process_group=group)
            wrapped = DistributedDataParallel(model, process_group=group)
        try:
            loss_of(wrapped, rank, 0, "mlp").backward()
        finally:
            sync.detach()

    return train


def _fully_sharded(group: Any, rank: int) -> None:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    model = nn.Linear(4, 4)
    fully_shard(model, mesh=DeviceMesh.from_group(group, "cpu"))
    ssfx.attach(model, sgd(model.parameters()), scheme="topk")


def _another_optimizer(group: Any, rank: int) -> None:
    ssfx.attach(build("mlp"), sgd(build("mlp").parameters()), process_group=group)


def _half_an_optimizer(group: Any, rank: int) -> None:
    model = build("mlp")
    ssfx.attach(model, sgd(list(model.parameters())[1:]), process_group=group)


def _no_optimizer(group: Any, rank: int) -> None:
    ssfx.attach(build("mlp"), build("mlp"), process_group=group)  # type: ignore[arg-type]


def _no_module(group: Any, rank: int) -> None:
    ssfx.attach(list(build("mlp").parameters()), sgd(build("mlp").parameters()), process_group=group)  # type: ignore[arg-type]


def _own_state(change: Callable[[dict[str, Any]], None]) -> Callable[[Any, int], None]:
    def load(group: Any, rank: int) -> None:
        model = build("mlp")
        sync = ssfx.attach(model, sgd(model.parameters()), process_group=group, **SPARSE)
        try:
            loss_of(model, rank, 0, "mlp").backward()
            state = sync.state_dict()
            assert state["memory"]
            change(state)
            sync.load_state_dict(state)
        finally:
            sync.detach()

    return load


def _first_residual(state: dict[str, Any]) -> dict[str, torch.Tensor]:
    return next(buffers for buffers in state["memory"].values() if "residual" in buffers)


REFUSED: dict[str, Callable[[Any, int], None]] = {
    "ddp": _ddp_wrapped,
    "another model": _another_model,
    "another frozen part": _another_frozen_part,
    "sparse gradient": _sparse_gradient,
    "inside ddp, made before": _inside_ddp("ddp"),
    "inside ddp, made after": _inside_ddp("attach"),
    "fully_shard": _fully_sharded,
    "optimizer of another model": _another_optimizer,
    "optimizer of a part": _half_an_optimizer,
    "no optimizer": _no_optimizer,
    "no module": _no_module,
    "no state": _own_state(dict.clear),
    "state of another format": _own_state(lambda s: s.update(format=99)),
    "state with a damaged plan": _own_state(lambda s: s.update(plan="{")),
    "state with a residual that is not finite": _own_state(
        lambda s: _first_residual(s).update(residual=_first_residual(s)["residual"] * float("nan"))
    ),
    "state with a residual of another shape": _own_state(
        lambda s: _first_residual(s).update(residual=torch.zeros(3, 1))
    ),
    "state of another world size": _state_of({}, build("mlp"), lambda s: s.update(world_size=8)),
    "state of another rank": _state_of({}, build("mlp"), lambda s: s.update(rank=7)),
    "state of another scheme": _state_of(SPARSE, build("mlp"), lambda s: None),
    "state of another model": _state_of({}, build("tied"), lambda s: None),
}
