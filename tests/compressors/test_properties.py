"""What must hold for every compressor: conservation, planned size, determinism, contraction, legal payloads."""

import pytest
import torch
from compressors.kit import (
    CASTS,
    NUMELS,
    SILENT_AT_TIMES,
    SPARSIFIERS,
    decode,
    densities,
    encode,
    shapes_of_data,
    vectors,
)
from hypothesis import given, settings

from ssfx.compressors import Payload, build, k_ceil, k_floor

ALL = (*SPARSIFIERS, *CASTS)


def check(spec: str, a: torch.Tensor, density: float, **changes: int) -> tuple[Payload, torch.Tensor]:
    """Check one call against everything a payload must satisfy; return the payload and what was decoded."""
    compressor = build(spec)
    numel = a.numel()
    payload, ctx = encode(compressor, a, density, **changes)
    sent = decode(compressor, payload, ctx, numel)
    kept = a.clone()
    compressor.decompress_add(payload, kept, ctx, scale=-1.0)

    touched = sent != 0
    assert torch.equal(kept[~touched], a[~touched])
    if payload.values.dtype == torch.float32:
        assert torch.equal(sent[touched], a[touched])
        assert torch.all(kept[touched] == 0)
    else:
        # one rounding of a subtraction of neighbours; exact in float64, so the sum returns the input
        assert torch.equal((sent.double() + kept.double()).float(), a)

    if compressor.sparse:
        _check_indices(payload, numel)
        assert torch.count_nonzero(sent) <= payload.indices.numel()
    return payload, sent


def _check_indices(payload: Payload, numel: int) -> None:
    indices = payload.indices.long()
    used = int(payload.counts[0]) if payload.counts.numel() else indices.numel()
    assert torch.all((indices >= 0) & (indices < numel))
    assert torch.all(indices[:used].diff() > 0), "ascending and unique"
    assert torch.all(indices[used:] == 0)
    assert torch.all(payload.values[used:] == 0)


@pytest.mark.parametrize("spec", SPARSIFIERS)
@given(a=vectors(), density=densities)
@settings(max_examples=60, deadline=None)
def test_sent_plus_kept_is_what_came_in(spec: str, a: torch.Tensor, density: float) -> None:
    limit = 1e4 if "float16" in spec else 3e38
    if a.abs().max() < limit:  # beyond the range of its values a payload is infinite, and the step is skipped
        check(spec, a, density)


@pytest.mark.parametrize("spec", SPARSIFIERS)
@pytest.mark.parametrize("numel", NUMELS)
def test_awkward_inputs(spec: str, numel: int) -> None:
    for name, a in shapes_of_data(numel).items():
        if name == "huge" and "float16" in spec and "bfloat16" not in spec:
            continue
        for density in (0.001, 0.1, 1.0):
            payload, sent = check(spec, a, density)
            if density == 1.0:
                assert torch.equal(sent, a.to(payload.values.dtype).float()), name
            if not spec.startswith(SILENT_AT_TIMES) and a.any() and "float16" not in spec:
                assert sent.any(), f"{name}: a tensor that is not zero must send something"
            if not a.any():
                assert not sent.any()


@pytest.mark.parametrize("spec", CASTS)
@pytest.mark.parametrize("world_size", [1, 3, 8])
def test_cast_error_is_small_and_conserved(spec: str, world_size: int) -> None:
    bound = 2**-11 if spec.startswith("fp16") else 2**-8
    a = torch.randn(300_000, generator=torch.Generator().manual_seed(1)) + 3  # longer than one block
    compressor = build(spec)
    payload, ctx = encode(compressor, a, 1.0, world_size=world_size)
    sent = decode(compressor, payload, ctx, a.numel())
    normal = a.abs() > 1e-3
    assert torch.all(((sent - a).abs() / a.abs())[normal] <= bound * 1.001)
    assert torch.equal(payload.values, (a / world_size).to(payload.values.dtype))
    kept = a.clone()
    compressor.decompress_add(payload, kept, ctx, scale=-1.0)
    torch.testing.assert_close(sent.double() + kept.double(), a.double(), rtol=1e-7, atol=0)


@pytest.mark.parametrize("spec", ["fp16", "randomk(value_dtype=float16)"])
def test_sum_over_ranks_stays_in_range(spec: str) -> None:
    a = torch.full((4,), 60000.0)
    payloads = [encode(spec, a, 1.0, world_size=8, rank=rank)[0] for rank in range(8)]
    total, ctx = encode(spec, a, 1.0, world_size=8)
    total.values.copy_(torch.stack([p.values for p in payloads]).sum(0))
    out = torch.zeros(4)
    build(spec).decompress_add(total, out, ctx, scale=1 / 8)
    assert torch.equal(out, a)


def test_shared_randomk_sums_like_its_inputs() -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(500, generator=generator) for _ in range(3)]
    payloads = [encode("randomk", a, 0.1, rank=rank, world_size=3, step=4)[0] for rank, a in enumerate(inputs)]
    total, ctx = encode("randomk", torch.stack(inputs).sum(0), 0.1, world_size=3, step=4)
    torch.testing.assert_close(torch.stack([p.values for p in payloads]).sum(0), total.values)
    single = sum(decode("randomk", p, ctx, 500) for p in payloads)
    torch.testing.assert_close(single, decode("randomk", total, ctx, 500))


@pytest.mark.parametrize("spec", SPARSIFIERS)
def test_equal_keys_give_equal_payloads_and_steps_differ(spec: str) -> None:
    a = torch.randn(40_000, generator=torch.Generator().manual_seed(3))
    state = torch.get_rng_state()
    first, _ = encode(spec, a, 0.01, step=5, tensor_id=2, seed=9)
    again, _ = encode(spec, a, 0.01, step=5, tensor_id=2, seed=9)
    later, _ = encode(spec, a, 0.01, step=6, tensor_id=2, seed=9)
    assert torch.equal(torch.get_rng_state(), state), "the global generator is not touched"
    assert torch.equal(first.indices, again.indices)
    assert torch.equal(first.values, again.values)
    if spec.startswith("randomk"):
        assert not torch.equal(first.values, later.values)


@pytest.mark.parametrize("spec", ["topk", "dgc", "dgc(mode=faithful)"])
@given(a=vectors(), density=densities)
@settings(max_examples=60, deadline=None)
def test_contraction(spec: str, a: torch.Tensor, density: float) -> None:
    payload, sent = check(spec, a, density)
    kept = int(payload.counts[0]) if payload.counts.numel() else payload.indices.numel()
    error = (a.double() - sent.double()).square().sum().item()
    norm = a.double().square().sum().item()
    nonzero = int(torch.count_nonzero(a))
    # elements that are all zero carry nothing: a sparsifier may leave them out and still contract
    factor = 1 - kept / a.numel() if kept < nonzero else 0.0
    if spec != "dgc(mode=faithful)":  # its "first k by index" is not ordered by magnitude
        assert error <= factor * norm * (1 + 1e-5)
    assert error <= norm


def test_randomk_contracts_on_average() -> None:
    a = torch.randn(200, generator=torch.Generator().manual_seed(0)).double()
    density, steps = 0.1, 4000
    errors = torch.empty(steps, dtype=torch.float64)
    for step in range(steps):
        payload, ctx = encode("randomk", a.float(), density, step=step)
        errors[step] = (a - decode("randomk", payload, ctx, 200).double()).square().sum()
    expected = (1 - density) * a.square().sum()
    assert abs(errors.mean() - expected) < 5 * errors.std() / steps**0.5


@pytest.mark.parametrize("spec", ALL)
def test_layout_is_pure_and_bounded(spec: str) -> None:
    compressor = build(spec)
    for numel in (1, 7, 1000, 25_557_032):
        for density in (0.001, 0.29, 1.0):
            layout = compressor.layout(numel, density)
            assert layout == compressor.layout(numel, density)
            assert max(layout.values, layout.indices) <= numel
            if not compressor.sparse and spec in SPARSIFIERS:
                assert layout.values == k_floor(numel, density)
            if spec == "dgc(mode=faithful)":
                assert layout.values == k_ceil(numel, density)


@pytest.mark.parametrize("spec", ALL)
def test_empty_tensor(spec: str) -> None:
    payload, ctx = encode(spec, torch.zeros(0), 0.01)
    assert decode(spec, payload, ctx, 0).numel() == 0


@pytest.mark.parametrize("spec", ["topk", "dgc", "dgc(mode=faithful)"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_non_finite_input_does_not_crash(spec: str, bad: float) -> None:
    for numel in (5, 30_000):
        a = torch.randn(numel, generator=torch.Generator().manual_seed(0))
        a[3] = bad
        payload, _ = encode(spec, torch.nan_to_num(a, nan=0.0), 0.01)
        build(spec).compress(a, payload, encode(spec, torch.zeros(numel), 0.01)[1])
        assert torch.all((payload.indices >= 0) & (payload.indices < numel))
