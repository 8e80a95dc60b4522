"""1-bit SGD with means per column: both paths, the projection, mixed shapes, sizes, what is not finite."""

from contextlib import nullcontext

import pytest
import torch
from compressors.kit import payload_bytes, shapes_of_data
from hypothesis import given, settings
from hypothesis import strategies as st

from ssfx.compressors import Context, Payload, build
from ssfx.compressors.batch import Batch, compress
from ssfx.compressors.blank import blank_batch
from ssfx.compressors.kernels import plain_torch
from ssfx.compressors.memories import memories
from ssfx.compressors.onebit import SHORTEST, split
from ssfx.core.errors import ConfigError

CODEC = build("onebit(scope=column)")
Shape = tuple[int, ...]
SEGMENTS: list[list[Shape]] = [
    [(64, 5), (7,), (3, 40)],
    [(100, 3, 3, 3), (1,), ()],
    [(0, 4), (70, 1)],
    [(0,)],
    [(2000,)],
]


def filled(segments: list[list[Shape]], seed: int, memory: str = "none") -> Batch:
    batch = blank_batch(CODEC, segments, 1.0, memories.build(memory))
    generator = torch.Generator().manual_seed(seed)
    batch.payload.scales.fill_(77)
    batch.payload.codes.fill_(77)
    # a coarse grid: sums are exact in any order
    batch.grads = [(torch.randn(hi - lo, generator=generator) * 8).round() / 8 for lo, hi in batch.pieces]
    return batch


def decoded(batch: Batch) -> list[torch.Tensor]:
    found = []
    for part in batch.parts:
        out = torch.zeros(part.numel)
        CODEC.decompress_add(batch.share(part), out, Context(0, 0, 0, 1, 1.0, shapes=part.shapes))
        found.append(out)
    return found


shapes = st.one_of(
    st.tuples(st.integers(0, 40)),
    st.tuples(st.sampled_from([1, 2, 63, 64, 65, 130]), st.integers(0, 40)),
    st.tuples(st.sampled_from([64, 70]), st.integers(1, 5), st.integers(1, 5)),
)


@given(segments=st.lists(st.lists(shapes, min_size=1, max_size=3), min_size=1, max_size=3), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_compiled_equals_plain_with_error_feedback(segments: list[list[Shape]], seed: int) -> None:
    one, other = filled(segments, seed, "residual"), filled(segments, seed, "residual")
    compress(CODEC, one)
    with plain_torch():
        compress(CODEC, other)
        expected = decoded(other)
    assert payload_bytes(one.payload) == payload_bytes(other.payload)
    assert torch.equal(one.vector, other.vector)
    for a, b in zip(decoded(one), expected, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("plain", [False, True])
def test_every_column_is_decoded_by_its_own_means(plain: bool) -> None:
    with plain_torch() if plain else nullcontext():
        batch = filled(SEGMENTS, seed=1)
        compress(CODEC, batch)
        found = decoded(batch)
    for part, out in zip(batch.parts, found, strict=True):
        start = part.lo
        for shape in part.shapes:
            a = batch.vector[start : start + int(torch.Size(shape).numel())]
            got = out[start - part.lo :][: a.numel()]
            tall = len(shape) > 1 and shape[0] >= SHORTEST
            columns = a.view(shape[0], -1).T if tall else a.view(1, -1)
            for column, sent in zip(columns, got.view(shape[0], -1).T if tall else got.view(1, -1), strict=True):
                for chosen in (column < 0, column >= 0):
                    if chosen.any():
                        mean = column[chosen].double().mean().item()
                        assert sent[chosen].tolist() == pytest.approx([mean] * int(chosen.sum()), rel=1e-6)
            start += a.numel()


def test_it_is_a_projection_that_leaves_no_more_than_one_pair_of_means() -> None:
    generator = torch.Generator().manual_seed(0)
    scale = torch.linspace(0.01, 10, 50)  # columns of different magnitudes: what one pair of means blurs
    a = (torch.randn(128, 50, generator=generator) * scale).view(-1)
    left = {}
    for spec in ("onebit", "onebit(scope=column)"):
        codec = build(spec)
        payload = Payload.allocate(codec.layout_of([(128, 50)], 1.0))
        ctx = Context(0, 0, 0, 1, 1.0, shapes=((128, 50),))
        codec.compress(a, payload, ctx)
        out = torch.zeros_like(a)
        codec.decompress_add(payload, out, ctx)
        left[spec] = (a - out).double().square().sum()
        norms = a.double().square().sum() - out.double().square().sum()
        assert left[spec] == pytest.approx(norms.item(), rel=1e-5)
    assert left["onebit(scope=column)"] < 0.7 * left["onebit"]


def test_planned_sizes() -> None:
    assert CODEC.layout_of([(128, 50), (128,)], 1.0).nbytes == 8 * 51 + 128 * 51 // 8
    assert CODEC.layout_of([(10, 500)], 1.0).nbytes == 8 + 625, "columns of ten elements would cost more than dense"
    assert CODEC.layout(128 * 128, 1.0) == CODEC.layout_of([(128, 128)], 1.0)
    assert CODEC.layout(1000, 1.0) == CODEC.layout_of([(1000,)], 1.0) == build("onebit").layout(1000, 1.0)
    assert CODEC.layout_of([(0,)], 1.0).nbytes == CODEC.layout(0, 1.0).nbytes == 0
    assert split(((64, 2), (5,))) == ((0, 64, 2, 0), (128, 5, 1, 4))


def test_a_tall_matrix_of_awkward_columns_stays_finite() -> None:
    for name, a in shapes_of_data(64 * 9).items():
        ctx = Context(0, 0, 0, 1, 1.0, shapes=((64, 9),))
        payloads = []
        for plain in (False, True):
            payload = Payload.allocate(CODEC.layout_of(ctx.shapes, 1.0))
            with plain_torch() if plain else nullcontext():
                CODEC.compress(a, payload, ctx)
            payloads.append(payload)
        assert torch.isfinite(payloads[0].scales).all(), name
        assert torch.equal(payloads[0].codes, payloads[1].codes), name
        torch.testing.assert_close(payloads[0].scales, payloads[1].scales, rtol=1e-6, atol=0)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("plain", [False, True])
def test_receivers_see_what_is_not_finite(bad: float, plain: bool) -> None:
    with plain_torch() if plain else nullcontext():
        batch = filled([[(64, 8)], [(64, 2)]], seed=0)
        grad = batch.grads[0]
        assert grad is not None
        grad[100] = bad
        compress(CODEC, batch)
        first, second = decoded(batch)
    assert not torch.isfinite(first).all()
    assert torch.isfinite(second).all()


def test_another_scope_is_refused() -> None:
    with pytest.raises(ConfigError, match="scope must be segment or column"):
        build("onebit(scope=row)")
