"""The same training on the pool's ranks and on virtual ones: dropout, running statistics, momentum, any scheme."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from runtime.cases import Options, profiled
from runtime.models import batch
from runtime.work import costs_for
from torch import nn

import ssfx
from ssfx.collectives.comm import Comm
from ssfx.compressors.memories import memories
from ssfx.runtime.online import parameter_names, registration_profile

STEPS = 7


def on_gloo(group: Any, rank: int, world: int, options: Options) -> dict[str, Any]:
    return trained(rank, world, options, process_group=group)


def virtual(world: int, options: Options, *, share: bool = False) -> list[dict[str, Any]]:
    def train(rank: int, comm: Comm) -> dict[str, Any]:
        return trained(rank, world, options, share=share, comm=comm)

    return ssfx.virtual_ranks(train, world)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(20, 300), nn.BatchNorm1d(300), nn.Tanh(), nn.Dropout(0.2), nn.Linear(300, 40), nn.LayerNorm(40),
        nn.Linear(40, 5),
    )  # fmt: skip


def trained(rank: int, world: int, options: Options, *, share: bool = False, **where: Any) -> dict[str, Any]:
    """Train some steps; return all that must be equal on real and virtual ranks."""
    model = network()
    memory = options.get("memory")
    momentum = 0.0 if memory is not None and memories.build(memory).forbids_optimizer_momentum else 0.9
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum)
    if share:
        ssfx.share_weights(model, optimizer, where["comm"])
    given = {"costs": costs_for(world), **options}
    if profiled(options):
        base = registration_profile(parameter_names(model))
        given["profile"] = replace(base, ready_gap_s=(1e-3,) * len(base.tensors), forward_s=1e-2)
    sync = ssfx.attach(model, optimizer, **where, **given)
    torch.manual_seed(rank)
    losses = []
    for step in range(STEPS):
        inputs, targets = batch(rank, step)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    sync.detach()
    return {
        "losses": losses, "state": {**model.state_dict()}, "plan": sync.plan.to_json(),
        "memory": {f"{n} {b}": t for n, kept in sync.store.state_dict().items() for b, t in kept.items()},
        "sent": sync.comm.sent, "contributed": sync.comm.contributed_bytes, "calls": sync.comm.calls,
        "random": torch.rand(3),
    }  # fmt: skip
