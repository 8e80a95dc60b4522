"""What the pool's ranks run: what attach and load_state_dict refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from runtime.models import Mlp, build
from runtime.work_attach import SPARSE, Options, sgd
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ssfx
from ssfx.core.errors import ConfigError


def refusal(group: Any, rank: int, world: int, case: str) -> str:
    """Return the text of the ConfigError that `case` raises on this rank."""
    try:
        REFUSED[case](group, rank)
    except ConfigError as error:
        return str(error)
    return ""


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


REFUSED: dict[str, Callable[[Any, int], None]] = {
    "ddp": _ddp_wrapped,
    "another model": _another_model,
    "another frozen part": _another_frozen_part,
    "sparse gradient": _sparse_gradient,
    "state of another world size": _state_of({}, build("mlp"), lambda s: s.update(world_size=8)),
    "state of another rank": _state_of({}, build("mlp"), lambda s: s.update(rank=7)),
    "state of another scheme": _state_of(SPARSE, build("mlp"), lambda s: None),
    "state of another model": _state_of({}, build("tied"), lambda s: None),
}
