"""Segmented equals one by one: a batch of tensors gets the payloads that each tensor alone would get."""

from dataclasses import replace

import pytest
import torch
from compressors.kit import payload_bytes

from ssfx.compressors import Compressor, Context, Payload, build, compressors
from ssfx.compressors.batch import Batch, propose
from ssfx.compressors.blank import blank_batch
from ssfx.compressors.memories import Memory, memories

SHAPES = ((40, 30), (7,), (1,), (64, 100), (5000,))
DENSITY = 0.03


NAMES = [one.name for one in compressors]


def make_batch(compressor: Compressor, memory: Memory | None = None) -> Batch:
    batch = blank_batch(compressor, [[shape] for shape in SHAPES], DENSITY, memory)
    batch.rank, batch.world_size, batch.step = 1, 2, 3
    return batch


def fill(batch: Batch, compressor: Compressor) -> None:
    if compressor.rounds == 2:
        propose(compressor, batch)
    compressor.compress_batch(batch)


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_is_its_segments_one_by_one(name: str) -> None:
    compressor = build(name)
    batch = make_batch(compressor)
    batch.vector.normal_(generator=torch.Generator().manual_seed(1))
    fill(batch, compressor)
    for part, state in zip(batch.parts, batch.states, strict=True):
        a = batch.vector[part.lo : part.hi]
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


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["float16", "bfloat16", "strided"])
def test_gradients_of_any_kind_count_as_what_they_are_in_float32(name: str, kind: str) -> None:
    compressor, memory = build(name), memories.build("residual")
    plain, other = make_batch(compressor, memory), make_batch(compressor, memory)
    generator = torch.Generator().manual_seed(2)
    given, known = [], []
    for lo, hi in plain.pieces:
        grad = torch.randn(2 * (hi - lo), generator=generator)
        grad = grad[::2] if kind == "strided" else grad[: hi - lo].to(getattr(torch, kind))
        given.append(grad)
        known.append(grad.float().contiguous())
    other.grads, plain.grads = given, known
    for batch in (plain, other):
        fill(batch, compressor)
    assert payload_bytes(plain.payload) == payload_bytes(other.payload)
    assert torch.equal(plain.vector, other.vector)


@pytest.mark.parametrize("name", [*NAMES, "topk(value_dtype=float16)", "block_topk(value_dtype=float16)"])
def test_batches_that_share_a_message_fill_their_own_parts_only(name: str) -> None:
    compressor = build(name)
    whole = make_batch(compressor)
    whole.vector.normal_(generator=torch.Generator().manual_seed(3))
    message = replace(whole, payload=make_batch(compressor).payload).payload
    fill(whole, compressor)
    for chosen in ((1, 3), (0, 2, 4)):
        some = replace(
            whole,
            parts=tuple(whole.parts[i] for i in chosen),
            payload=message,
            states=[{k: torch.zeros_like(v) for k, v in whole.states[i].items()} for i in chosen],
            grads=(),
            _kept={},
        )
        fill(some, compressor)
    assert payload_bytes(message) == payload_bytes(whole.payload)
    assert torch.equal(message.first, whole.payload.first)
