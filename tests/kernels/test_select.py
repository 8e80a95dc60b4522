"""Compiled selection equals the plain-torch path, bit for bit, over batches, memories and gradient layouts."""

from dataclasses import dataclass

import pytest
import torch
from compressors.kit import shapes_of_data
from hypothesis import given, settings
from hypothesis import strategies as st

from ssfx.compressors import Payload, build
from ssfx.compressors.batch import Batch, Part, compress
from ssfx.compressors.blank import blank_batch
from ssfx.compressors.kernels import Bound, Rule, kernels, plain_torch
from ssfx.compressors.memories import Memory, memories

CPU = torch.device("cpu")
MEMORIES = ("none", "residual", "momentum(decay=0.5)", "dgc(momentum=0.5)")


@dataclass
class Made:
    """A batch and the tensors behind it."""

    batch: Batch
    grads: list[torch.Tensor]


def make(
    spec: str, memory: Memory, sizes: list[list[int]], density: float, seed: int, device: torch.device = CPU
) -> Made:
    """Return a batch of segments with the given piece sizes, random state and gradients on a coarse grid.

    The grid makes ties common and every sum exact, so that fused and separate arithmetic must agree.
    """
    generator = torch.Generator().manual_seed(seed)

    def coarse(n: int) -> torch.Tensor:
        return ((torch.randn(n, generator=generator) * 8).round() / 8).to(device)

    batch = blank_batch(build(spec), [[(n,) for n in pieces] for pieces in sizes], density, memory, device)
    for garbage in (batch.payload.counts, batch.payload.indices, batch.payload.values, *batch.new.values()):
        garbage.fill_(77)
    for buffer in batch.old.values():
        buffer.copy_(coarse(buffer.numel()))
    grads = [coarse(hi - lo) for lo, hi in batch.pieces]
    batch.rank, batch.world_size, batch.seed, batch.step, batch.grads = 1, 2, seed, 3, list(grads)
    return Made(batch, grads)


def outcome(made: Made, spec: str) -> list[torch.Tensor]:
    compress(build(spec), made.batch)
    payload = made.batch.payload
    return [payload.counts, payload.indices, payload.values.float(), *made.batch.new.values()]


def check(spec: str, memory: str, sizes: list[list[int]], density: float, seed: int) -> Made:
    keeper = memories.build(memory)
    compiled, plain = (make(spec, keeper, sizes, density, seed) for _ in range(2))
    got = outcome(compiled, spec)
    with plain_torch():
        expected = outcome(plain, spec)
    for one, other in zip(got, expected, strict=True):
        assert torch.equal(one, other)
    return compiled


@pytest.mark.parametrize("spec", ["topk", "dgc", "topk(value_dtype=float16)"])
@pytest.mark.parametrize("memory", MEMORIES)
@given(
    sizes=st.lists(st.lists(st.integers(0, 40) | st.integers(0, 3000), min_size=1, max_size=3), min_size=1, max_size=4),
    density=st.sampled_from([0.001, 0.01, 0.1, 0.7, 1.0]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=25, deadline=None)
def test_compiled_equals_plain(spec: str, memory: str, sizes: list[list[int]], density: float, seed: int) -> None:
    check(spec, memory, sizes, density, seed)


@pytest.mark.parametrize("spec", ["topk", "dgc"])
def test_compiled_equals_plain_where_the_sample_is_a_small_part(spec: str) -> None:
    made = check(spec, "residual", [[150_000], [70_000, 5, 90_001], [300]], 0.01, seed=4)
    indices = made.batch.payload.indices
    for part in made.batch.parts:
        own = indices[part.starts.indices : part.starts.indices + part.layout.indices]
        assert torch.all((own >= part.lo) & (own < part.hi)), "a segment's indices stay inside the segment"


@pytest.mark.parametrize("first", [1, 5, 15, 16])
def test_memory_may_begin_at_any_address(first: int) -> None:
    keeper, sizes = memories.build("residual"), [[5000, 7], [6001]]
    made, expected = (make("topk", keeper, sizes, 0.02, seed=6) for _ in range(2))
    for buffers in (made.batch.new, made.batch.old):
        for name, buffer in buffers.items():
            moved = torch.zeros(first + buffer.numel())[first:]
            moved.copy_(buffer)
            buffers[name] = moved  # type: ignore[index]
    for one, two in zip(outcome(made, "topk"), outcome(expected, "topk"), strict=True):
        assert torch.equal(one, two)


def test_each_segment_has_its_own_threshold() -> None:
    made = make("topk", memories.build("none"), [[1000], [1000]], 0.01, seed=0)
    made.batch.grads = [torch.randn(1000) * 1e-6, torch.randn(1000) * 1e6]
    compress(build("topk"), made.batch)
    assert (made.batch.payload.indices < 1000).sum() == 10


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("strided", [False, True])
def test_gradients_that_the_kernel_cannot_read_are_accumulated_first(dtype: torch.dtype, strided: bool) -> None:
    made = make("topk", memories.build("residual"), [[600], [400]], 0.05, seed=1)
    other = make("topk", memories.build("residual"), [[600], [400]], 0.05, seed=1)
    spread = torch.zeros(1200, dtype=dtype)
    spread[::2] = made.grads[0].to(dtype)
    made.batch.grads = [spread[::2] if strided else made.grads[0].to(dtype), made.grads[1]]
    other.batch.grads = [made.grads[0].to(dtype).float(), made.grads[1]]
    for one, two in zip(outcome(made, "topk"), outcome(other, "topk"), strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("spec", ["topk", "dgc"])
def test_what_is_not_finite_is_always_sent(spec: str, bad: float) -> None:
    made = make(spec, memories.build("residual"), [[300_000], [40]], 0.001, seed=2)
    made.grads[0][123_456] = bad
    made.batch.grads = list(made.grads)
    compress(build(spec), made.batch)
    assert not torch.isfinite(made.batch.payload.values).all()


def test_base_moves_indices_on_the_wire_only() -> None:
    plain, moved = (make("topk", memories.build("residual"), [[500], [300]], 0.02, seed=3) for _ in range(2))
    moved.batch.base = 10_000
    first, second = outcome(plain, "topk"), outcome(moved, "topk")
    assert torch.equal(first[1] + 10_000, second[1])
    assert torch.equal(first[3], second[3])


def thresholded(numel: int, rule: Rule, a: torch.Tensor, threshold: float, plain: bool, step: int = 0) -> Payload:
    slots = rule.bounds[0].most
    layout = build("dgc").layout(numel, 1.0)
    layout = type(layout)(counts=1, indices=slots, values=slots)
    payload = Payload.allocate(layout)
    part = Part(0, numel, layout, 0.01, pieces=((0, numel),))
    batch = Batch((part,), payload, {"a": a}, step=step)
    given = torch.tensor([threshold])
    if plain:
        with plain_torch():
            kernels(CPU).select(batch, rule, given)
    else:
        kernels(CPU).select(batch, rule, given)
    return payload


@pytest.mark.parametrize("plain", [False, True])
def test_given_thresholds_capacity_fallback_and_rotation(plain: bool) -> None:
    a = torch.tensor([1.0, -5.0, 0.0, 2.0, -3.0, 4.0, 0.5, -0.0])
    at_most_three = Rule((Bound(0, 2, 3),))
    assert thresholded(8, at_most_three, a, 3.5, plain).indices.tolist() == [1, 5, 0]
    assert thresholded(8, at_most_three, a, 1.5, plain).indices.tolist() == [1, 4, 5], "cut to the largest"
    assert int(thresholded(8, at_most_three, a, 99.0, plain).counts[0]) == 0
    exact = Rule((Bound(1, 2, 3),))
    assert thresholded(8, exact, a, 99.0, plain).indices.tolist() == [1, 5, 0], "too few: exactly `wanted`"
    turning = Rule((Bound(0, 3, 3),), rotate=True)
    seen = [thresholded(8, turning, a, 99.0, plain, step).indices.tolist() for step in range(3)]
    assert seen == [[0, 1, 2], [3, 4, 5], [0, 6, 7]]
    assert int(thresholded(8, turning, torch.zeros(8), 99.0, plain).counts[0]) == 0
    assert int(thresholded(8, at_most_three, a, float("nan"), plain).counts[0]) == 3
    assert thresholded(8, Rule((Bound(0, 8, 8),)), a, 0.0, plain).counts.tolist() == [6], "zeros are never selected"


@pytest.mark.parametrize("numel", [1, 33, 1000, 5000])
def test_awkward_vectors_with_thresholds(numel: int) -> None:
    for name, a in shapes_of_data(numel).items():
        for most in {1, max(1, numel // 3), numel}:
            rule = Rule((Bound(0, max(1, most // 2), most),), rotate=True)
            for threshold in (0.0, 0.25, 1.0, 1e30):
                one, two = (thresholded(numel, rule, a, threshold, plain, step=5) for plain in (False, True))
                assert torch.equal(one.indices, two.indices), name
                assert torch.equal(one.values, two.values), name
                assert torch.equal(one.counts, two.counts), name
