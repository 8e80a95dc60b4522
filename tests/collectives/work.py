"""What the pool's ranks run: one exchange each, on data that the test can compute too."""

from __future__ import annotations

from typing import Any

import torch
from runtime.ranks import comm_of

from ssfx.collectives import collectives
from ssfx.compressors import Context, Payload, build
from ssfx.compressors.memories import memories


def reduced(group: Any, rank: int, world: int, data: list[list[float]], dtype: str) -> torch.Tensor:
    """Return what all_reduce leaves in this rank's row of `data`."""
    message = torch.tensor(data[rank], dtype=getattr(torch, dtype))
    result = collectives.build("all_reduce").start(message, comm_of(group)).wait()
    assert result is message, "the sum is left in place"
    return result


def gathered(group: Any, rank: int, world: int, name: str, rows: list[list[int]]) -> tuple[torch.Tensor, int]:
    """Return the rows that the gather `name` gives for byte messages, and the bytes that this rank contributed."""
    comm = comm_of(group)
    result = collectives.build(name).start(torch.tensor(rows[rank], dtype=torch.uint8), comm).wait()
    return result, comm.contributed_bytes


def sparse_gather(
    group: Any, rank: int, world: int, acc: list[list[float]], counts: list[int], name: str
) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
    """Select with topk, keep the rest in a residual, gather; return (sum over ranks, residual, indices sent)."""
    topk, residual = build("topk"), memories.build("residual")
    ctx = Context(step=0, tensor_id=0, rank=rank, world_size=world, density=1.0)
    gradient = torch.tensor(acc[rank], dtype=torch.float32)
    old = {"residual": torch.zeros_like(gradient)}
    new = {"residual": torch.zeros_like(gradient)}
    residual.accumulate(gradient, old, new)
    n = counts[rank]
    message = torch.zeros(8 * n, dtype=torch.uint8)
    payload = _payload(message, n)
    if n:
        topk.compress(new["residual"], payload, ctx)
        residual.sent(topk, payload, new, ctx)
    total = torch.zeros_like(gradient)
    for row, count in zip(collectives.build(name).start(message, comm_of(group)).wait(), counts, strict=True):
        topk.decompress_add(_payload(row[: 8 * count].clone(), count), total, ctx)
    return total, new["residual"], payload.indices.tolist()


def _payload(message: torch.Tensor, n: int) -> Payload:
    none = torch.zeros(0)
    return Payload(
        none.int(), none, message[: 4 * n].view(torch.int32), message[4 * n :].view(torch.float32), none, none
    )
