"""A batch of zeros with everything that a lane would give it: for warming up, measuring and testing compressors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ssfx.compressors.base import Compressor, Layout, Payload
from ssfx.compressors.batch import Batch, Part, Starts, compress, propose
from ssfx.core.lazy import torch

if TYPE_CHECKING:
    from ssfx.compressors.memories.base import Memory

Shape = tuple[int, ...]


def blank_batch(
    compressor: Compressor,
    segments: Sequence[Sequence[Shape]],
    density: float,
    memory: Memory | None = None,
    device: torch.device | str = "cpu",
) -> Batch:
    """Return a batch of `segments`, each the shapes of its tensors, with a payload and buffers of its own.

    Segments have tensor ids 0, 1, ... in order. Without a memory the flat vector is to be filled by the caller.
    """
    parts, at, lo = [], Starts(), 0
    for tensor_id, shapes in enumerate(segments):
        layout, start, pieces = compressor.layout_of(shapes, density), lo, []
        for shape in shapes:
            pieces.append((lo, lo + math.prod(shape)))
            lo += math.prod(shape)
        parts.append(Part(start, lo, layout, density, tensor_id, at, tuple(pieces), tuple(shapes)))
        used = (layout.counts, layout.scales, layout.indices, layout.values, layout.code_bytes, layout.first)
        at = Starts(*(taken + more for taken, more in zip(at, used, strict=True)))
    kind = parts[0].layout
    whole = Layout(at.counts, at.scales, at.indices, at.values, kind.value_dtype, at.codes, at.first, kind.first_dtype)

    def zeros(shape: Shape) -> torch.Tensor:
        return torch.zeros(shape, dtype=torch.float32, device=device)

    buffers = memory.buffers if memory is not None else ("a",)
    new = {name: zeros((lo,)) for name in buffers}
    old = {name: zeros((lo,)) for name in buffers} if memory is not None and memory.stateful else {}
    states = [{k: zeros(v) for k, v in compressor.state_shapes(part.shapes).items()} for part in parts]
    return Batch(tuple(parts), Payload.allocate(whole, device), new, old, memory, states=states)


def run(batch: Batch, compressor: Compressor) -> None:
    """Do what a lane does with one step's batch on its own rank; of two rounds, the sum is this rank's share alone."""
    if compressor.rounds == 2:
        propose(compressor, batch)
    compress(compressor, batch)
