"""Measuring quality during training: every rank scores a share of the held-out samples, and the sums are added."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ssfx.core.case import Case
from ssfx.lab.workloads.base import Dataset
from ssfx.lab.workloads.metrics.tally import Tally, quality_of
from ssfx.lab.workloads.sharded import local, whole
from ssfx.lab.workloads.sync import Sync


def due(case: Case, step: int) -> bool:
    """Return whether quality is measured after step number `step`: every `evaluate_every` steps and after the last."""
    every = case.evaluate_every
    return case.evaluate and (step + 1 == case.steps or bool(every and (step + 1) % every == 0))


def measure(case: Case, data: Dataset, model: nn.Module, sync: Sync, rank: int, group: Any) -> dict[str, float | None]:
    """Return the metrics of quality and the state of the exchange, the same on all ranks; None for what is not finite.

    Besides quality: `error_norm`, the Euclidean norm of what a rank has not sent yet, mean over ranks, and `threshold`,
    that of a collective that steers one (where there is one), and `union_density`, the fraction of elements of the
    averaged gradient that are not zero. Running statistics are averaged over ranks for the measurement alone.
    """
    with averaged_buffers(model, case.world_size, group), whole(case, model):
        tally = data.tally(model, rank, case.world_size)
    total = _summed(tally | _exchange_state(model, sync), group)
    ranks = total.pop("ranks")
    found = quality_of(total)
    for name in ("error_norm", "threshold", "union_density"):
        if name in total:
            found[name] = total[name] / ranks
    return {name: value if math.isfinite(value) else None for name, value in found.items()}


def _exchange_state(model: nn.Module, sync: Sync) -> Tally:
    stats = sync.stats()
    known = {"error_norm": stats.get("residual_norm"), "threshold": stats.get("threshold")}
    grads = [local(p.grad) for p in model.parameters() if p.grad is not None]
    elements = sum(grad.numel() for grad in grads)
    found: Tally = {name: float(value) for name, value in known.items() if value is not None}
    if elements:
        found["union_density"] = sum(int(grad.count_nonzero()) for grad in grads) / elements
    found["ranks"] = 1.0
    return found


def _summed(tally: Tally, group: Any) -> Tally:
    if group is None:
        return tally
    names = sorted(tally)
    sums = torch.tensor([tally[name] for name in names], dtype=torch.float64)
    dist.all_reduce(sums, group=group)
    return dict(zip(names, sums.tolist(), strict=True))


@contextmanager
def averaged_buffers(model: nn.Module, world_size: int, group: Any) -> Iterator[None]:
    """Replace every floating-point buffer (running statistics) by its mean over ranks for the block; one all-reduce."""
    buffers = [b for b in model.buffers() if b.is_floating_point()]
    if world_size == 1 or not buffers:
        yield
        return
    before = [buffer.clone() for buffer in buffers]
    flat = torch.cat([b.detach().float().flatten() for b in buffers]).cpu()
    dist.all_reduce(flat, group=group)
    flat /= world_size
    with torch.no_grad():
        for buffer, mean in zip(buffers, flat.split([b.numel() for b in buffers]), strict=True):
            buffer.copy_(mean.view_as(buffer))
        try:
            yield
        finally:
            for buffer, value in zip(buffers, before, strict=True):
                buffer.copy_(value)
