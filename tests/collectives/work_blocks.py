"""What the pool's ranks run to try sketches, sums of blocks and rows, and compressors in all-reduces."""

from dataclasses import dataclass
from typing import Any

import torch
from runtime.ranks import comm_of

from ssfx.collectives import Reduction, Traffic, collectives
from ssfx.collectives.s2_sketch import Hashes, S2Sketch
from ssfx.compressors import Context, Payload, build
from ssfx.compressors.memories import memories

Rows = list[list[float]]


def sketched(
    group: Any, rank: int, world: int, spec: str, acc: Rows, kept: int, hashes: Hashes | None, step: int = 0
) -> tuple[torch.Tensor, list[int], torch.Tensor]:
    """Return the estimate, the elements it is about, and what this rank keeps, with given or drawn hash functions."""
    reducer = collectives.build(spec)
    assert isinstance(reducer, S2Sketch)
    work, comm = Reduction(torch.tensor(acc[rank]), kept, step), comm_of(group)
    reduced = reducer.reduce(work, comm) if hashes is None else reducer.reduce_with(hashes, work, comm)
    assert reduced.traffic == comm.sent
    assert reduced.indices is not None
    total = torch.zeros(len(acc[0]))
    total[reduced.indices] = reduced.values
    return total, reduced.indices.tolist(), work.vector


def summed(
    group: Any, rank: int, world: int, spec: str, rows: Rows, dtype: str = "float32"
) -> tuple[torch.Tensor, Traffic, bool]:
    """Return what collective `spec` makes of this rank's row, what was counted on the way, whether it was in place."""
    message, comm = torch.tensor(rows[rank], dtype=getattr(torch, dtype)), comm_of(group)
    result = collectives.build(spec).start(message, comm).wait()
    return message, comm.sent, result is message


@dataclass
class Update:
    """One step of a compressor on one rank: the sum of what was sent, and what is kept."""

    total: torch.Tensor
    residual: torch.Tensor


def compressed(
    group: Any,
    rank: int,
    world: int,
    spec: str,
    memory_spec: str,
    grads: list[list[Any]],
    density: float = 1.0,
    state: dict[str, Any] | None = None,
) -> list[Update]:
    """Feed grads[step][rank] through an additive compressor and a memory, sums by all_reduce on the group.

    `state` replaces the compressor's initial one.
    """
    comm, given = comm_of(group), state or {}
    compressor, memory, reduce = build(spec), memories.build(memory_spec), collectives.build("all_reduce")
    shape = tuple(torch.tensor(grads[0][comm.rank]).shape)
    numel = torch.Size(shape).numel()
    payload = Payload.allocate(compressor.layout_of([shape], density))
    own = {name: torch.zeros(size) for name, size in compressor.state_shapes([shape]).items()}
    for name, value in given.items():
        own[name].copy_(torch.tensor(value).T.reshape(-1))  # factors lie column by column
    old = {name: torch.zeros(numel) for name in memory.buffers}
    new = {name: torch.zeros(numel) for name in memory.buffers}
    updates = []
    for step, rows in enumerate(grads):
        ctx = Context(step, 0, comm.rank, comm.world_size, density, 0, (shape,), own)
        memory.accumulate(torch.tensor(rows[comm.rank]).view(-1), old, new)
        vector = new[memory.buffers[0]]
        if compressor.rounds == 2:
            compressor.propose(vector, payload, ctx)
            reduce.start(payload.first, comm).wait()
        compressor.compress(vector, payload, ctx)
        memory.sent(compressor, payload, new, ctx)
        reduce.start(payload.values, comm).wait()
        compressor.received(payload, ctx)
        total = torch.zeros(numel)
        compressor.decompress_add(payload, total, ctx)
        old, new = new, old
        updates.append(Update(total, old[memory.buffers[0]].clone()))
    return updates
