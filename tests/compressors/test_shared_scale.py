"""TernGrad and QSGD with a scale that ranks agree on: levels add up, both paths agree, ranges, what is not finite."""

from contextlib import nullcontext

import pytest
import torch
from compressors.kit import context, shapes_of_data, vectors
from hypothesis import given, settings

from ssfx.compressors import Context, Layout, Payload, build
from ssfx.compressors.kernels import plain_torch
from ssfx.compressors.memories import check_pair, memories
from ssfx.core.errors import ConfigError

SHARED = (
    "terngrad(shared=True)",
    "terngrad(clip=0,shared=True)",
    "qsgd(bits=4,shared=True)",
    "qsgd(bits=4,bucket=64,norm=max,shared=True)",
    "qsgd(bits=2,bucket=0,shared=True)",
)


def exchange(spec: str, inputs: list[torch.Tensor], step: int = 0) -> list[tuple[Payload, Context]]:
    """Run both rounds on every rank's input; return each rank's payload before the second sum."""
    compressor, world = build(spec), len(inputs)
    layout = compressor.layout(inputs[0].numel(), 1.0)
    ranks = [(Payload.allocate(layout), context(rank=r, world_size=world, step=step)) for r in range(world)]
    for a, (payload, ctx) in zip(inputs, ranks, strict=True):
        compressor.propose(a, payload, ctx)
    largest = torch.stack([payload.first for payload, _ in ranks]).amax(0)
    for a, (payload, ctx) in zip(inputs, ranks, strict=True):
        payload.first.copy_(largest)
        compressor.compress(a, payload, ctx)
    return ranks


def mean(spec: str, ranks: list[tuple[Payload, Context]]) -> torch.Tensor:
    """Return what every rank decodes from the sum of all levels, taken in bytes as the network does."""
    payload, ctx = ranks[0]
    out = torch.zeros(payload.values.numel())
    total = torch.stack([p.values for p, _ in ranks]).sum(0, dtype=torch.int8)
    summed = Payload(payload.counts, payload.scales, payload.indices, total, payload.codes, payload.first)
    build(spec).decompress_add(summed, out, ctx, scale=1 / len(ranks))
    return out


@pytest.mark.parametrize("spec", SHARED)
@given(a=vectors())
@settings(max_examples=40, deadline=None)
def test_compiled_equals_plain(spec: str, a: torch.Tensor) -> None:
    inputs = [a, a.flip(0) * 0.5, torch.zeros_like(a)]
    found = []
    for plain in (False, True):
        with plain_torch() if plain else nullcontext():
            ranks = exchange(spec, inputs, step=2)
            found.append((ranks, mean(spec, ranks)))
    for (one, _), (other, _) in zip(found[0][0], found[1][0], strict=True):
        assert torch.equal(one.first, other.first)
        assert torch.equal(one.values, other.values)
    assert torch.equal(found[0][1], found[1][1])


@pytest.mark.parametrize("spec", SHARED)
def test_the_sum_of_levels_is_the_sum_of_what_ranks_mean(spec: str) -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(1500, generator=generator) * scale for scale in (1.0, 3.0, 0.1)]
    ranks = exchange(spec, inputs)
    alone = torch.zeros(1500)
    for payload, ctx in ranks:
        build(spec).decompress_add(payload, alone, ctx, scale=1 / 3)
    torch.testing.assert_close(mean(spec, ranks), alone)
    assert torch.equal(ranks[0][0].first, ranks[1][0].first)


@pytest.mark.parametrize("spec", ["terngrad(clip=0,shared=True)", *SHARED[2:]])
def test_it_is_unbiased(spec: str) -> None:
    inputs = [torch.linspace(-1, 1, 40), torch.linspace(3, -2, 40)]
    draws = torch.stack([mean(spec, exchange(spec, inputs, step)) for step in range(2000)])
    error = (draws.mean(0) - (inputs[0] + inputs[1]) / 2).abs()
    assert torch.all(error <= 5 * draws.std(0) / 2000**0.5 + 1e-6)


@pytest.mark.parametrize("spec", SHARED)
@pytest.mark.parametrize("numel", [1, 7, 33, 1000])
def test_awkward_inputs(spec: str, numel: int) -> None:
    for name, a in shapes_of_data(numel).items():
        ranks = exchange(spec, [a, -2 * a])
        assert torch.isfinite(ranks[0][0].first).all(), name
        assert torch.isfinite(mean(spec, ranks)).all(), name
        for x, (payload, _) in zip((a, -2 * a), ranks, strict=True):
            assert torch.all(payload.values * x.sign() >= 0), f"{name}: no sign flips"
            assert int(payload.values.abs().max()) <= (7 if "bits=4" in spec else 1)


@pytest.mark.parametrize("spec", SHARED)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_on_one_rank_is_seen_by_all(spec: str, bad: float) -> None:
    a = torch.randn(600, generator=torch.Generator().manual_seed(0))
    worse = a.clone()
    worse[577] = bad
    ranks = exchange(spec, [a, worse, a])
    assert all(bool(torch.isinf(payload.first).any()) for payload, _ in ranks)


def test_one_byte_an_element_and_no_more_ranks_than_it_holds() -> None:
    assert build(SHARED[0]).layout(1000, 1.0) == Layout(first=1, values=1000, value_dtype="int8")
    assert build("qsgd(bits=4,shared=True)").layout(1000, 1.0).nbytes == 4 * 2 + 1000
    assert build(SHARED[0]).layout(0, 1.0).nbytes == 0
    for spec, most in ((SHARED[0], 127), ("qsgd(bits=4,shared=True)", 18), (SHARED[4], 127)):
        build(spec).check_world(most)
        with pytest.raises(ConfigError, match=f"use at most {most} ranks") as error:
            build(spec).check_world(most + 1)
        assert "\n" not in str(error.value)
    with pytest.raises(ConfigError, match="bits=2 or bits=4"):
        build("qsgd(shared=True)")


def test_error_feedback_is_refused() -> None:
    check_pair(memories.build("residual"), build("qsgd(bits=4,bucket=40)"))
    for spec in ("qsgd(bits=4,bucket=40,shared=True)", SHARED[0]):
        with pytest.raises(ConfigError, match="memory=none"):
            check_pair(memories.build("residual"), build(spec))
