"""What the pool's ranks run with unequal numbers of batches."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from runtime.models import build, loss_of
from runtime.work import costs_for
from runtime.work_attach import Options, distance, same_on_all_ranks, sgd
from runtime.work_guards import error_of
from torch.distributed.algorithms.join import Join

import ssfx


def _states_agree(group: Any, optimizer: torch.optim.Optimizer) -> bool:
    same = True
    for state in (optimizer.state[p] for group_ in optimizer.param_groups for p in group_["params"]):
        for value in (value for _, value in sorted(state.items()) if isinstance(value, torch.Tensor)):
            first = value.clone()
            dist.broadcast(first, 0, group=group)
            same &= torch.equal(first, value)
    return same


def uneven(group: Any, rank: int, world: int, how: str, options: Options, batches: list[int]) -> dict[str, Any]:
    """Train with so many batches on each rank, then one more together."""
    model = build("mlp")
    optimizer = torch.optim.AdamW(model.parameters()) if how == "adam" else sgd(model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0) if how == "scaler" else None
    sync = ssfx.attach(model, optimizer, process_group=group, scaler=scaler, costs=costs_for(world), **options)

    def step(number: int) -> None:
        optimizer.zero_grad()
        if how == "accumulate":
            with sync.no_sync():
                loss_of(model, rank, 100 + number).backward()
        if scaler is None:
            loss_of(model, rank, number).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
        else:
            scaler.scale(loss_of(model, rank, number)).backward()
            scaler.step(optimizer)
            scaler.update()

    with Join([sync]) if how == "Join" else sync.join():
        for number in range(batches[rank]):
            step(number)
    report = {
        "exchanges": sync.step,
        "parameters agree": same_on_all_ranks(group, model),
        "optimizers agree": _states_agree(group, optimizer),
    }
    step(50)
    report["trains on"] = same_on_all_ranks(group, model) and sync.step == max(batches) + 1
    sync.detach()
    return report


def against_zeros(group: Any, rank: int, world: int, options: Options) -> float:
    """Return the distance from a twin of which rank 1 trains on losses of zero where it has no batch."""
    model, twin = build("mlp"), build("mlp")
    mine, theirs = sgd(model.parameters()), sgd(twin.parameters())
    sync = ssfx.attach(model, mine, process_group=group, **options)
    other = ssfx.attach(twin, theirs, process_group=group, **options)
    with sync.join():
        for step in range(5 if rank == 0 else 3):
            mine.zero_grad()
            loss_of(model, rank, step).backward()
            mine.step()
    for step in range(5):
        theirs.zero_grad()
        (loss_of(twin, rank, step) * float(rank == 0 or step < 3)).backward()
        theirs.step()
    sync.detach()
    other.detach()
    return distance(model, twin)


def schedule_in_join(group: Any, rank: int, world: int) -> str:
    model = build("mlp")
    optimizer = sgd(model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    sync = ssfx.attach(model, optimizer, process_group=group)

    def train() -> None:
        with sync.join():
            for step in range(3 + rank):
                optimizer.zero_grad()
                loss_of(model, rank, step).backward()
                optimizer.step()
                schedule.step()

    text = error_of(train)
    sync.detach()
    return text
