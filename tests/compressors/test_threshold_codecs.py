"""What threshold codecs promise beyond what every sparsifier does, and that batches, tensors and plain torch agree."""

import math

import pytest
import torch
from compressors.kit import context, decode, densities, encode, shapes_of_data, vectors
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels.test_select import check, make

from ssfx.compressors import Payload, build, k_floor
from ssfx.compressors.batch import Batch, compress
from ssfx.compressors.kernels import kernels, plain_torch
from ssfx.compressors.memories import memories
from ssfx.compressors.threshold import ThresholdSelector, above, reaching
from ssfx.core.errors import ConfigError

FIXED = ("gaussiank", "redsync", "hard_threshold", "hard_threshold(threshold=1.0)")
"""Variable counts, no state."""
EXACT = ("mstopk",)
ALL = (*FIXED, "sidco", *EXACT)


def threshold_and_count(spec: str, a: torch.Tensor, density: float) -> tuple[float, int]:
    """Return the threshold of a one-tensor batch and how many magnitudes reach it."""
    codec = build(spec)
    assert isinstance(codec, ThresholdSelector)
    batch = Batch.single(a, Payload.allocate(codec.layout(a.numel(), density)), context(density))
    kernel = kernels(a.device)
    threshold = codec.thresholds(batch, kernel)
    return threshold.item(), int(kernel.count(batch, threshold))


@pytest.mark.parametrize("spec", FIXED)
@given(a=vectors(), density=densities)
@settings(max_examples=60, deadline=None)
def test_what_reaches_the_threshold_is_sent_up_to_capacity(spec: str, a: torch.Tensor, density: float) -> None:
    payload, ctx = encode(spec, a, density)
    sent = decode(spec, payload, ctx, a.numel())
    count, slots, k = int(payload.counts[0]), payload.indices.numel(), k_floor(a.numel(), density)
    kept = (a - sent).abs()
    threshold, reached = threshold_and_count(spec, a, density)
    nonzero = int(torch.count_nonzero(a))
    if k >= a.numel():
        assert torch.equal(sent, a)
    elif min(reached, nonzero) == 0:
        assert count == (k if nonzero else 0), "its turn from a moving offset"
    else:
        assert count == min(reached, nonzero, slots)
        if count < slots:
            assert kept.max() < threshold or threshold == 0
        elif (sent != 0).any():
            assert kept.max() <= sent[sent != 0].abs().min()
        error, norm = kept.double().square().sum().item(), a.double().square().sum().item()
        assert error <= (1 - count / a.numel()) * norm * (1 + 1e-5)


@pytest.mark.parametrize("spec", [*FIXED, *EXACT])
@given(
    sizes=st.lists(st.lists(st.integers(0, 40) | st.integers(0, 3000), min_size=1, max_size=3), min_size=1, max_size=4),
    density=st.sampled_from([0.001, 0.01, 0.1, 0.7, 1.0]),
    memory=st.sampled_from(["none", "residual", "momentum(decay=0.5)", "dgc(momentum=0.5)"]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=40, deadline=None)
def test_compiled_equals_plain_torch(spec: str, memory: str, sizes: list[list[int]], density: float, seed: int) -> None:
    check(spec, memory, sizes, density, seed)


@pytest.mark.parametrize("spec", ALL)
@pytest.mark.parametrize("numel", [1, 2, 33, 1000])
def test_compiled_equals_plain_torch_for_awkward_tensors(spec: str, numel: int) -> None:
    for name, a in shapes_of_data(numel).items():
        for density in (0.001, 0.1):
            one, _ = encode(spec, a, density, step=3)
            with plain_torch():
                other, _ = encode(spec, a, density, step=3)
            for field in ("counts", "indices", "values", "scales"):
                assert torch.equal(getattr(one, field), getattr(other, field)), name


@pytest.mark.parametrize("spec", [*FIXED, "mstopk"])
def test_a_batch_gives_what_its_tensors_give_alone(spec: str) -> None:
    sizes = [[700], [5], [0], [3000]]
    made = make(spec, memories.build("none"), sizes, 0.02, seed=8)
    compress(build(spec), made.batch)
    for part, a in zip(made.batch.parts, made.grads, strict=True):
        alone, _ = encode(spec, a, 0.02, step=3, rank=1, world_size=2, seed=8, tensor_id=part.tensor_id)
        share = made.batch.share(part)
        assert torch.equal(share.counts, alone.counts)
        assert torch.equal(share.indices, alone.indices + part.lo)
        assert torch.equal(share.values, alone.values)


@pytest.mark.parametrize("spec", ALL)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_reaches_receivers(spec: str, bad: float) -> None:
    for numel in (1, 40, 5000):
        a = torch.randn(numel, generator=torch.Generator().manual_seed(0))
        a[numel // 3] = bad
        codec = build(spec)
        payload, ctx = encode(spec, torch.zeros(numel), 0.01)
        codec.compress_batch(Batch.single(a, payload, ctx))
        assert not torch.isfinite(decode(spec, payload, ctx, numel)).all()


@pytest.mark.parametrize("spec", ["hard_threshold(threshold=1e9)", "redsync"])
def test_a_tensor_below_its_threshold_takes_turns(spec: str) -> None:
    a = torch.full((103,), -0.5)
    seen = torch.zeros(103)
    for step in range(math.ceil(103 / 10)):
        payload, ctx = encode(spec, a, 0.1, step=step)
        assert int(payload.counts[0]) == 10
        seen += decode(spec, payload, ctx, 103)
    assert torch.all(seen != 0)


def test_gaussiank_counts_normal_data_right_whatever_its_scale() -> None:
    a = torch.randn(200_000, generator=torch.Generator().manual_seed(0))
    for scale in (1e-42, 1e-20, 1.0, 1e30):
        count = int(encode("gaussiank", a * scale, 0.01)[0].counts[0])
        assert 0.5 * 2000 <= count <= 1.3 * 2000, scale


def test_sidco_is_right_for_exponential_data() -> None:
    torch.manual_seed(0)
    a = torch.distributions.Exponential(3.0).sample((200_000,)) * torch.sign(torch.randn(200_000))
    a[::2] = 0  # zeros belong to no family and do not spoil the fit
    for stages in (1, 2, 3):
        codec = build("sidco")
        batch = Batch.single(a, Payload.allocate(codec.layout(a.numel(), 0.001)), context(0.001))
        batch.states = [{"stages": torch.tensor([stages - 1.0, 0, 0, 0, 0, 0])}]
        codec.compress_batch(batch)
        assert int(batch.payload.counts[0]) == pytest.approx(200, rel=0.25)


def test_sidco_finds_its_number_of_stages_and_keeps_it_per_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    heavy, light = torch.distributions.StudentT(3.0).sample((100_000,)), torch.randn(100_000)
    monkeypatch.setattr(ThresholdSelector, "capacity", 10.0)
    made = make("sidco", memories.build("none"), [[100_000], [100_000]], 0.001, seed=0)
    codec, batch = build("sidco"), made.batch
    shapes = codec.state_shapes([(100_000,)])
    batch.states = [{name: torch.zeros(shape) for name, shape in shapes.items()} for _ in batch.parts]
    for step in range(30):
        batch.step, batch.grads = step, [heavy, light]
        codec.compress_batch(batch)
    for state, count in zip(batch.states, batch.payload.counts.tolist(), strict=True):
        assert state["stages"][0] > 0, "one stage is not enough for either"
        assert count == pytest.approx(100, rel=0.4)
    assert not torch.equal(batch.states[0]["stages"], batch.states[1]["stages"])


def test_mstopk_is_topk_where_magnitudes_differ_and_always_sends_k() -> None:
    a = torch.randn(20_000, generator=torch.Generator().manual_seed(1))
    assert torch.equal(encode("mstopk", a, 0.01)[0].indices, encode("topk", a, 0.01)[0].indices)
    for name, tied in shapes_of_data(1000).items():
        for step in range(3):
            payload, ctx = encode("mstopk", tied, 0.1, step=step)
            assert torch.all(payload.indices.diff() > 0), name
            sent = decode("mstopk", payload, ctx, 1000)
            assert (tied - sent).abs().sum() <= tied.abs().sum()


@given(threshold=st.floats(0, 1e38) | st.sampled_from([0.0, 0.1, 0.25, 1e-45, 1e-50]))
def test_thresholds_are_rounded_so_that_comparisons_stay_exact(threshold: float) -> None:
    level = torch.tensor([threshold], dtype=torch.float64)
    strict, weak = above(level), reaching(level)
    assert torch.equal(strict.float().double(), strict)
    assert torch.equal(weak.float().double(), weak)
    assert before(strict) <= level < strict
    assert before(weak) < level <= weak


def before(number: torch.Tensor) -> torch.Tensor:
    return torch.nextafter(number.float(), torch.tensor(-1.0)).double()


def test_capacity_and_wire_size() -> None:
    for spec, slots in (("gaussiank", 130), ("sidco", 130), ("hard_threshold", 400), ("redsync", 130)):
        layout = build(spec).layout(10_000, 0.01)
        assert (layout.counts, layout.indices, layout.values, layout.nbytes) == (1, slots, slots, 4 + 8 * slots)
    assert build("mstopk").layout(10_000, 0.01).nbytes == 800


@pytest.mark.parametrize(
    "spec",
    [
        "hard_threshold(capacity=0.5)",
        "hard_threshold(threshold=-1)",
        "mstopk(value_dtype=int8)",
    ],
)
def test_options_that_make_no_sense_are_refused_in_one_line(spec: str) -> None:
    with pytest.raises(ConfigError) as error:
        build(spec)
    assert "\n" not in str(error.value)
