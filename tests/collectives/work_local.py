"""Every primitive on data that differ by rank: on the pool's ranks, and on virtual ones."""

from __future__ import annotations

from typing import Any

import torch

from ssfx.collectives.comm import Comm
from ssfx.collectives.torch_comm import TorchComm

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64)
SIZES = (1, 2, 3, 7, 8, 100, 4097, 300_001)
"""The last is longer than what gloo sends at once."""


def on_gloo(group: Any, rank: int, world: int) -> dict[str, torch.Tensor]:
    return primitives(TorchComm(group))


def primitives(comm: Comm) -> dict[str, torch.Tensor]:
    """Return what each primitive leaves on this rank, and what was counted."""
    found: dict[str, torch.Tensor] = {}
    world, rank = comm.world_size, comm.rank
    for dtype in DTYPES:
        for numel in SIZES:
            own = data(rank, world, numel, dtype)
            name = f"{dtype} {numel}"
            found[f"sum {name}"] = comm.all_reduce(own.clone()).wait()
            found[f"part {name}"] = comm.reduce_scatter(own.repeat(world)).wait()
            if numel > 4097:
                continue
            if dtype != torch.bfloat16:  # gloo has no maximum of it
                found[f"max {name}"] = comm.all_reduce(own.clone(), op="max").wait()
            found[f"rows {name}"] = comm.all_gather(own).wait()
            found[f"from last {name}"] = comm.broadcast(own.clone(), world - 1).wait()
            found[f"to all {name}"] = comm.all_to_all(own.repeat(world, 1) + rank).wait()
            room = torch.zeros(numel + 3, dtype=dtype)
            comm.swap({(rank + 1) % world: own}, {(rank - 1) % world: room}).wait()
            found[f"neighbour {name}"] = room
    found["counted"] = torch.tensor([comm.calls, comm.contributed_bytes, comm.sent.messages, comm.sent.sent_bytes])
    return found


def data(rank: int, world: int, numel: int, dtype: torch.dtype) -> torch.Tensor:
    """Return numbers of many magnitudes, whose sum depends on its order."""
    generator = torch.Generator().manual_seed(1000 * world + rank)
    numbers = torch.randn(numel, generator=generator, dtype=torch.float64)
    return (numbers * torch.exp(2 * torch.randn(numel, generator=generator, dtype=torch.float64))).to(dtype)
