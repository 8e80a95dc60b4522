"""What the pool's ranks run to try the hierarchical all-reduce: whole, and phase by phase."""

from typing import Any

import torch
from runtime.ranks import comm_of

from ssfx.collectives import Traffic, collectives
from ssfx.collectives.hierarchical import gather_parts, sum_of_part


def summed(group: Any, rank: int, world: int, spec: str, data: list[Any], dtype: str) -> tuple[torch.Tensor, Traffic]:
    """Return what the collective leaves in this rank's row of `data`, and what Comm counted."""
    comm, message = comm_of(group), torch.tensor(data[rank], dtype=getattr(torch, dtype))
    result = collectives.build(spec).start(message, comm).wait()
    assert result is message, "the sum is left in place"
    return result, comm.sent


def by_phase(group: Any, rank: int, world: int, size: int, data: list[Any]) -> tuple[list[float], list[float], int]:
    """Return the shard after the node's reduce-scatter and after the sum across nodes; bytes that left the node."""
    comm, message = comm_of(group), torch.tensor(data[rank])
    first = rank // size * size
    inside, across = range(first, first + size), range(rank % size, world, size)
    shard = sum_of_part(comm, inside, message)
    before, within = shard.tolist(), comm.sent.sent_bytes
    piece = sum_of_part(comm, across, shard)
    gather_parts(comm, across, piece, shard)
    return before, shard.tolist(), comm.sent.sent_bytes - within
