"""What the pool's ranks run for the statistics and the trace of a step."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from runtime.models import build, loss_of
from runtime.work import STEPS, attached, train
from torch import nn

import ssfx
from ssfx.wire import plan_bytes

Options = dict[str, Any]


class Uneven(nn.Module):
    """Three vectors whose gradients are constants: large, small and zero."""

    def __init__(self) -> None:
        super().__init__()
        self.small = nn.Parameter(torch.zeros(20))
        self.empty = nn.Parameter(torch.zeros(0))
        self.large = nn.Parameter(torch.zeros(20))
        self.unused = nn.Parameter(torch.zeros(20))

    def forward(self, rank: int) -> torch.Tensor:
        large = self.large if rank == 0 else 0 * self.large
        return (100 * large + self.small).sum() + self.empty.sum()


def missing(group: Any, rank: int, world: int, options: Options) -> tuple[float, float | None, int]:
    """Return achieved density, tensor-missing rate and the number of tensors of the second step of `Uneven`."""
    model = Uneven()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sync = ssfx.attach(model, optimizer, process_group=group, **options)
    for _ in range(2):
        optimizer.zero_grad()
        model(rank).backward()
        if sync.step == 1:
            sync.store.scale(0.0)  # so that only this step's gradient counts
        optimizer.step()
    result = (sync.last.achieved_density, sync.last.tensor_missing_rate, len(sync.plan.tensors))
    sync.detach()
    return result


def contributed(group: Any, rank: int, world: int, options: Options) -> list[tuple[int, int, int]]:
    """Return (contributed bytes, bytes of the plan in use, bytes sent) of every step."""
    model, optimizer, sync = attached("mlp", group, world, options)
    seen = []
    for step in range(STEPS):
        planned = plan_bytes(sync.plan)
        train(model, optimizer, rank, range(step, step + 1))
        seen.append((sync.last.contributed_bytes, planned, sync.last.sent_bytes))
        summary = sync.stats()
        assert summary["contributed_bytes"] == planned
        assert 0 < summary["achieved_density"] <= 1
        assert summary["comm_s"] > 0
    sync.detach()
    return seen


def trace(group: Any, rank: int, world: int, options: Options) -> tuple[dict[str, Any], list[str], int]:
    """Return the trace file of a few steps, what the exchange spans of the last step must be called, and lanes."""
    model, optimizer, sync = attached("mlp", group, world, {**options, "trace": True})
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        sync.tracer.save(path)
        saved = json.loads(path.read_text())
        assert [p.name for p in Path(folder).iterdir()] == ["trace.json"]
    names = [f"exchange {lane.collective}" for _, lane in sync.plan.lanes()]
    sync.detach()
    return saved, names, sync.step


def untraced(group: Any, rank: int, world: int) -> int:
    model = build("mlp")
    sync = ssfx.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), process_group=group)
    loss_of(model, rank, 0).backward()
    sync.detach()
    return len(sync.tracer._events)


def ratios(group: Any, rank: int, world: int, options: Options) -> tuple[list[float], list[float]]:
    """Return the density ratios of the first step of `Uneven`, read at once and after the buffers are gone."""
    model = Uneven()
    sync = ssfx.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), process_group=group, **options)
    model(rank).backward()
    before = sorted(sync.last.density_ratios)
    sync.last.freeze()
    sync.detach()
    return before, sorted(sync.last.density_ratios)
