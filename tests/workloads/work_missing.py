"""What the pool's ranks run for tensors of which nothing is sent; see test_missing.py."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import nn

import ssfx


class Seen(NamedTuple):
    """Missing rate of each step, the same counted by hand, tensors of the largest segment, density of the last step.

    By hand: the k largest magnitudes of what that segment holds without a memory, k = floor(density * elements).
    """

    rates: list[float | None]
    by_hand: list[float]
    together: int
    density: float


class Given(nn.Module):
    """Parameters whose gradients are given: vectors of normal numbers, each vector with a scale of its own."""

    def __init__(self, tensors: list[tuple[int, float]], seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.vectors = nn.ParameterList(nn.Parameter(torch.zeros(numel)) for numel, _ in tensors)
        self.gradients = [scale * torch.randn(numel, generator=generator) for numel, scale in tensors]

    def forward(self) -> torch.Tensor:
        return torch.stack([(v * g).sum() for v, g in zip(self.vectors, self.gradients, strict=True)]).sum()


def missing(
    group: Any, rank: int, world: int, tensors: list[tuple[int, float]], steps: int, options: dict[str, Any]
) -> Seen:
    """Train `Given` and return what was seen."""
    model = Given(tensors, seed=rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sync = ssfx.attach(model, optimizer, process_group=group, **options)
    rates, by_hand = [], []
    for _ in range(steps):
        optimizer.zero_grad()
        model().backward()
        rates.append(sync.last.tensor_missing_rate)
        optimizer.step()
        segments = [segment.tensors for _, lane in sync.plan.lanes() for segment in lane.segments]
        joint = [model.gradients[int(name.split(".")[1])] for name in max(segments, key=len)]
        by_hand.append(_left_out(joint, options["density"]) / len(tensors))
    density = sync.last.achieved_density
    sync.detach()
    return Seen(rates, by_hand, len(joint), density)


def _left_out(gradients: list[torch.Tensor], density: float) -> int:
    together = torch.cat(gradients).abs()
    chosen = torch.zeros(len(together), dtype=torch.bool)
    chosen[together.topk(max(1, math.floor(density * len(together)))).indices] = True
    return sum(not bool(part.any()) for part in chosen.split([len(g) for g in gradients]))
