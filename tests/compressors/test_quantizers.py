"""Quantising codecs: compiled equals plain torch, awkward inputs, batches, wire sizes, keys, what is not finite."""

from itertools import pairwise

import pytest
import torch
from compressors.kit import context, decode, encode, golden, payload_bytes, shapes_of_data, vectors
from hypothesis import given, settings
from hypothesis import strategies as st

from ssfx.compressors import Payload, build
from ssfx.compressors.batch import Batch, Part, Starts, compress
from ssfx.compressors.kernels import plain_torch
from ssfx.compressors.memories import memories
from ssfx.core.errors import ConfigError

QUANTIZERS = (
    "signsgd",
    "signsgd(zeros=abstain)",
    "ef_signsgd",
    "onebit",
    "qsgd",
    "qsgd(bits=4)",
    "qsgd(bits=2,bucket=0)",
    "qsgd(bits=4,bucket=64,norm=max)",
    "qsgd(bucket=0,norm=max)",
    "qsgd(bits=4,bucket=64,norm=max,nearest=True)",
    "qsgd(bits=4,bucket=48,norm=max,rotate=32)",
    "qsgd(rotate=128)",
    "fp8",
)
EDGES = (1, 2, 7, 8, 9, 31, 32, 33, 1023, 1024, 1025)


def check(spec: str, a: torch.Tensor, **changes: int) -> tuple[Payload, torch.Tensor]:
    """Encode and decode on both paths, which must agree bit for bit; return payload and decoded vector."""
    payload, ctx = encode(spec, a, 1.0, **changes)
    sent = decode(spec, payload, ctx, a.numel())
    with plain_torch():
        plain, _ = encode(spec, a, 1.0, **changes)
        plain_sent = decode(spec, plain, ctx, a.numel())
    assert payload_bytes(payload) == payload_bytes(plain)
    assert torch.equal(sent, plain_sent)
    return payload, sent


@pytest.mark.parametrize("spec", QUANTIZERS)
@given(a=vectors(), step=st.integers(0, 5), scale=st.sampled_from([1.0, -1.0, 1 / 3]))
@settings(max_examples=60, deadline=None)
def test_compiled_equals_plain(spec: str, a: torch.Tensor, step: int, scale: float) -> None:
    payload, _ = check(spec, a, step=step, rank=1)
    into, plain = a.clone(), a.clone()
    build(spec).decompress_add(payload, into, context(), scale)
    with plain_torch():
        build(spec).decompress_add(payload, plain, context(), scale)
    assert torch.equal(into, plain), "adding to what is there"


@pytest.mark.parametrize("spec", QUANTIZERS)
@pytest.mark.parametrize("numel", EDGES)
def test_awkward_inputs(spec: str, numel: int) -> None:
    for name, a in shapes_of_data(numel).items():
        payload, sent = check(spec, a)
        assert torch.isfinite(payload.scales).all(), name
        assert "rotate" in spec or torch.all(sent * a >= 0), f"{name}: no sign flips"
        if "sign" in spec or spec == "onebit":
            unused = 2 * (-numel % 4) if "abstain" in spec else -numel % 8
            assert int(payload.codes[-1]) & ((1 << unused) - 1) == 0, "pad bits are 0"
        if not a.any() and spec != "signsgd":
            assert not sent.any()


def make(spec: str, memory: str, sizes: list[list[int]], seed: int) -> Batch:
    """Return a batch of segments with pending gradients; coarse numbers make fused and separate sums agree."""
    compressor, keeper = build(spec), memories.build(memory)
    generator = torch.Generator().manual_seed(seed)

    def coarse(n: int) -> torch.Tensor:
        return (torch.randn(n, generator=generator) * 8).round() / 8

    parts, at, lo = [], Starts(), 0
    for i, pieces in enumerate(sizes):
        layout = compressor.layout(sum(pieces), 1.0)
        edges = [lo + sum(pieces[:j]) for j in range(len(pieces) + 1)]
        bounds = tuple(pairwise(edges))
        parts.append(Part(lo, edges[-1], layout, 1.0, tensor_id=i, starts=at, pieces=bounds))
        at = at._replace(scales=at.scales + layout.scales, codes=at.codes + layout.code_bytes)
        lo = edges[-1]
    payload = Payload.allocate(compressor.layout(0, 1.0))
    payload.scales = torch.full((at.scales,), 77.0)
    payload.codes = torch.full((at.codes,), 77, dtype=torch.uint8)
    old = {name: coarse(lo) for name in keeper.buffers} if keeper.stateful else {}
    new = {name: torch.full((lo,), 77.0) for name in keeper.buffers}
    grads = [coarse(hi - low) for part in parts for low, hi in part.pieces]
    return Batch(tuple(parts), payload, new, old, keeper, rank=1, world_size=2, seed=seed, step=3, grads=grads)


@pytest.mark.parametrize("spec", QUANTIZERS)
@given(
    sizes=st.lists(st.lists(st.integers(0, 40) | st.integers(0, 3000), min_size=1, max_size=3), min_size=1, max_size=4),
    seed=st.integers(0, 1000),
)
@settings(max_examples=20, deadline=None)
def test_a_batch_is_its_segments_one_by_one(spec: str, sizes: list[list[int]], seed: int) -> None:
    compressor = build(spec)
    memory = "residual" if compressor.error_feedback else "none"
    batch, plain = make(spec, memory, sizes, seed), make(spec, memory, sizes, seed)
    compress(compressor, batch)
    with plain_torch():
        compress(compressor, plain)
    assert payload_bytes(batch.payload) == payload_bytes(plain.payload)
    assert torch.equal(batch.vector, plain.vector)
    accumulated = make(spec, memory, sizes, seed)
    accumulated.accumulate()
    for part in batch.parts:
        a = accumulated.vector[part.lo : part.hi]
        alone, ctx = encode(spec, a, 1.0, step=3, rank=1, seed=seed, tensor_id=part.tensor_id)
        assert payload_bytes(alone) == payload_bytes(batch.share(part))
        if memory == "residual":
            left = a.clone()
            compressor.decompress_add(alone, left, ctx, scale=-1.0)
            assert torch.equal(left, batch.vector[part.lo : part.hi])


def test_wire_bytes() -> None:
    for row in golden("wire_bytes")[2]["rows"]:
        n = row["n"]

        def nbytes(spec: str, n: int = n) -> int:
            return build(spec).layout(n, 1.0).nbytes

        assert nbytes("signsgd") == 4 + row["sign"], "bits, and a float that can say NaN"
        assert nbytes("signsgd(zeros=abstain)") == row["terngrad"], "a float, and two bits an element"
        assert nbytes("ef_signsgd") == row["ef_sign"]
        assert nbytes("onebit") == row["onebit"]
        assert nbytes("qsgd(bucket=0)") == row["qsgd8_whole"]
        assert nbytes("qsgd(bits=4)") == row["qsgd4_bucket512"]


@pytest.mark.parametrize("spec", QUANTIZERS)
def test_nothing_in_nothing_out(spec: str) -> None:
    payload, ctx = encode(spec, torch.zeros(0), 1.0)
    assert payload.nbytes == 0
    assert decode(spec, payload, ctx, 0).numel() == 0
    with plain_torch():
        assert decode(spec, payload, ctx, 0).numel() == 0


@pytest.mark.parametrize("spec", QUANTIZERS)
def test_equal_keys_give_equal_payloads_and_no_generator_is_touched(spec: str) -> None:
    a = torch.randn(5000, generator=torch.Generator().manual_seed(3))
    state = torch.get_rng_state()
    made = {
        changed: encode(spec, a, 1.0, **{"step": 5, "tensor_id": 2, "seed": 9, "rank": 1, changed: 7})[0]
        for changed in ("step", "tensor_id", "seed", "rank", "world_size")
    }
    first, _ = encode(spec, a, 1.0, step=5, tensor_id=2, seed=9, rank=1)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first.codes, made["world_size"].codes)
    random = not ("sign" in spec or spec == "onebit" or spec.startswith("fp8") or "nearest" in spec)
    for changed in ("step", "tensor_id", "seed", "rank"):
        assert torch.equal(first.codes, made[changed].codes) != random, changed


@pytest.mark.parametrize("spec", QUANTIZERS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("numel", [1, 9, 3000])
def test_receivers_see_what_is_not_finite(spec: str, bad: float, numel: int) -> None:
    a = torch.randn(numel, generator=torch.Generator().manual_seed(0))
    a[numel // 3] = bad
    payloads = []
    for plain in (False, True):
        payload = Payload.allocate(build(spec).layout(numel, 1.0))
        if plain:
            with plain_torch():
                build(spec).compress(a, payload, context())
        else:
            build(spec).compress(a, payload, context())
        assert not torch.isfinite(payload.scales).all()
        assert not torch.isfinite(decode(spec, payload, context(), numel)).all()
        payloads.append(payload)
    assert torch.equal(payloads[0].codes, payloads[1].codes)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("qsgd(bits=3)", "bits must be one of 2, 4, 8"),
        ("qsgd(bucket=100)", "multiple of 8"),
        ("qsgd(norm=l1)", "l2 or max"),
    ],
)
def test_wrong_options_are_one_line(spec: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as error:
        build(spec)
    assert "\n" not in str(error.value)
