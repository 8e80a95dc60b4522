"""Statistics over the segments of a batch equal the plain-torch path; on a coarse grid, bit for bit."""

import dataclasses

import pytest
import torch
from compressors.kit import shapes_of_data
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels.test_select import CPU, MEMORIES, make

from ssfx.compressors import Layout, Payload
from ssfx.compressors.batch import Batch, Part
from ssfx.compressors.kernels import Moments, Tail, kernels, plain_torch
from ssfx.compressors.memories import memories

FAST = kernels(CPU)
with plain_torch():
    PLAIN = kernels(CPU)

segments = st.lists(st.lists(st.integers(0, 40) | st.integers(0, 5000), min_size=1, max_size=3), min_size=1, max_size=4)
numbers = [0.0, 0.125, 0.25, 1.0, 1.1, 2.0, 3.0, 1e30, float("inf"), -1.0]
levels = st.sampled_from(numbers) | st.just(float("nan"))


def same(one: Moments | Tail, other: Moments | Tail) -> None:
    for field in dataclasses.fields(one):
        a, b = getattr(one, field.name), getattr(other, field.name)
        assert a.dtype == torch.float64
        assert torch.equal(a, b), field.name


def whole(a: torch.Tensor, k: int = 1) -> Batch:
    layout = Layout(counts=1, indices=k, values=k)
    part = Part(0, a.numel(), layout, 0.01, pieces=((0, a.numel()),))
    return Batch((part,), Payload.allocate(layout), {"a": a})


@pytest.mark.parametrize("memory", MEMORIES)
@given(sizes=segments, seed=st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_moments_accumulate_on_the_way(memory: str, sizes: list[list[int]], seed: int) -> None:
    compiled, plain = (make("topk", memories.build(memory), sizes, 0.01, seed).batch for _ in range(2))
    same(FAST.moments(compiled), PLAIN.moments(plain))
    for name, buffer in plain.new.items():
        assert torch.equal(compiled.new[name], buffer)
    assert all(grad is None for grad in compiled.grads)
    same(FAST.moments(compiled), PLAIN.moments(plain))


@given(sizes=segments, seed=st.integers(0, 1000), level=st.lists(levels, min_size=4, max_size=4))
@settings(max_examples=60, deadline=None)
def test_counts_and_tails(sizes: list[list[int]], seed: int, level: list[float]) -> None:
    batch = make("topk", memories.build("none"), sizes, 0.01, seed).batch
    batch.accumulate()
    thresholds = torch.tensor(level[: len(sizes)], dtype=torch.float64)
    same(FAST.tail(batch, thresholds), PLAIN.tail(batch, thresholds))
    counts = FAST.count(batch, thresholds)
    assert torch.equal(counts, PLAIN.count(batch, thresholds))
    assert torch.equal(counts, FAST.tail(batch, thresholds).count)
    for part, threshold, count in zip(batch.parts, level, counts.tolist(), strict=False):
        assert count == (batch.vector[part.lo : part.hi].abs() >= torch.tensor(threshold)).sum()


@pytest.mark.parametrize("numel", [1, 33, 1000, 5000])
def test_awkward_vectors(numel: int) -> None:
    for name, a in shapes_of_data(numel).items():
        batch, y = whole(a), a.double().abs()
        moments = FAST.moments(batch)
        assert moments.square.item() == pytest.approx(y.square().sum().item(), rel=1e-12), name
        assert moments.absolute.item() == pytest.approx(y.sum().item(), rel=1e-12), name
        assert moments.total.item() == pytest.approx(a.double().sum().item(), rel=1e-9, abs=1e-12 * y.sum().item())
        assert (moments.largest.item(), moments.nonzero.item()) == (y.max().item(), (y > 0).sum().item())
        middle = y.median().reshape(1)
        fast, plain = FAST.tail(batch, middle), PLAIN.tail(batch, middle)
        assert (fast.count, fast.least) == (plain.count, plain.least), name
        assert fast.square.item() == pytest.approx(plain.square.item(), rel=1e-12), name


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("kernel", [FAST, PLAIN])
def test_what_is_not_finite_shows(bad: float, kernel: object) -> None:
    a = torch.randn(5000, generator=torch.Generator().manual_seed(0))
    a[4321] = bad
    batch = whole(a)
    moments = kernel.moments(batch)  # type: ignore[attr-defined]
    assert not torch.isfinite(torch.cat([moments.total, moments.square, moments.absolute, moments.largest])).any()
    assert kernel.count(batch, torch.tensor([1e30])).item() == 1  # type: ignore[attr-defined]
    assert not torch.isfinite(kernel.tail(batch, torch.tensor([1e30])).total)  # type: ignore[attr-defined]


@given(
    sizes=segments,
    seed=st.integers(0, 1000),
    sure=st.lists(st.sampled_from(numbers), min_size=4, max_size=4),
    band=st.lists(st.sampled_from(numbers), min_size=4, max_size=4),
    skip=st.lists(st.integers(0, 50), min_size=4, max_size=4),
    dtype=st.sampled_from(["float32", "float16"]),
)
@settings(max_examples=100, deadline=None)
def test_choice_from_a_band(
    sizes: list[list[int]], seed: int, sure: list[float], band: list[float], skip: list[int], dtype: str
) -> None:
    num = len(sizes)
    upper, lower = torch.tensor(sure[:num]).double(), torch.tensor(band[:num]).double()
    lower = torch.where(lower > upper, upper, lower)
    payloads = []
    for kernel in (FAST, PLAIN):
        batch = make(f"topk(value_dtype={dtype})", memories.build("none"), sizes, 0.1, seed).batch
        batch.accumulate()
        batch.base = 7
        kernel.select_band(batch, upper, lower, torch.tensor(skip[:num]))
        payloads.append(batch.payload)
    assert torch.equal(payloads[0].indices, payloads[1].indices)
    assert torch.equal(payloads[0].values, payloads[1].values)


def test_a_run_of_the_band_fills_what_is_sure() -> None:
    a = torch.tensor([2.0, -5.0, 1.0, -2.0, 0.5, 2.0, 2.0])
    for kernel in (FAST, PLAIN):
        batch = whole(a, k=3)
        kernel.select_band(batch, torch.tensor([3.0]), torch.tensor([2.0]), torch.tensor([1]))
        assert batch.payload.indices.tolist() == [1, 3, 5]
        assert batch.payload.values.tolist() == [-5.0, -2.0, 2.0]
