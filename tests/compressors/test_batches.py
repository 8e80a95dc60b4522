"""Segmented equals one by one: a batch of tensors gets the payloads that each tensor alone would get."""

from __future__ import annotations

import pytest
import torch
from compressors.kit import payload_bytes

from ssfx.compressors import Context, Layout, Payload, build, compressors
from ssfx.compressors.batch import Batch, Part, Starts

SHAPES = ((40, 30), (7,), (1,), (64, 100), (5000,))
DENSITY = 0.03


@pytest.mark.parametrize("name", [one.name for one in compressors])
def test_a_batch_is_its_segments_one_by_one(name: str) -> None:
    compressor = build(name)
    generator = torch.Generator().manual_seed(1)
    tensors = [torch.randn(torch.Size(shape).numel(), generator=generator) for shape in SHAPES]
    parts, at, lo = [], Starts(), 0
    for i, (a, shape) in enumerate(zip(tensors, SHAPES, strict=True)):
        layout = compressor.layout_of([shape], DENSITY)
        parts.append(Part(lo, lo + len(a), layout, DENSITY, i, at, ((lo, lo + len(a)),), (shape,)))
        used = (layout.counts, layout.scales, layout.indices, layout.values, layout.code_bytes, layout.first)
        at = Starts(*(x + y for x, y in zip(at, used, strict=True)))
        lo += len(a)
    first = parts[0].layout
    whole = Layout(
        at.counts, at.scales, at.indices, at.values, first.value_dtype, at.codes, at.first, first.first_dtype
    )
    states = [{key: torch.zeros(size) for key, size in compressor.state_shapes(part.shapes).items()} for part in parts]
    batch = Batch(
        tuple(parts), Payload.allocate(whole), {"a": torch.cat(tensors)}, rank=1, world_size=2, step=3, states=states
    )
    if compressor.rounds == 2:
        batch.propose(compressor)
    compressor.compress_batch(batch)

    for a, part, state in zip(tensors, parts, states, strict=True):
        alone = {key: torch.zeros_like(value) for key, value in state.items()}
        ctx = Context(3, part.tensor_id, 1, 2, DENSITY, shapes=part.shapes, state=alone)
        payload = Payload.allocate(part.layout)
        if compressor.rounds == 2:
            compressor.propose(a, payload, ctx)
        compressor.compress(a, payload, ctx)
        if compressor.sparse:
            payload.indices.add_(part.lo)  # a batch counts positions from its own start
        assert payload_bytes(batch.share(part)) == payload_bytes(payload)
        assert torch.equal(batch.share(part).first, payload.first)
        for key in state:
            assert torch.equal(state[key], alone[key])
