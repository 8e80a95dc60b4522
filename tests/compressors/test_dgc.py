"""DGC: how many elements it keeps, what happens outside the window, the static form, and its options."""

from __future__ import annotations

import pytest
import torch
from compressors.kit import encode, shapes_of_data

from ssfx.compressors import Payload, build, k_ceil
from ssfx.compressors.dgc import DGC
from ssfx.compressors.keys import key
from ssfx.compressors.selection import sample_runs
from ssfx.errors import ConfigError


def laplace(numel: int, seed: int = 0) -> torch.Tensor:
    uniform = torch.rand(numel, generator=torch.Generator().manual_seed(seed)) - 0.5
    return -uniform.sign() * torch.log1p(-2 * uniform.abs())


@pytest.mark.parametrize("spec", ["dgc", "dgc(mode=faithful)"])
@pytest.mark.parametrize("numel", [10_000, 100_000, 1_000_000])
@pytest.mark.parametrize("density", [0.001, 0.01])
def test_count_lies_in_the_window(spec: str, numel: int, density: float) -> None:
    k = k_ceil(numel, density)
    for step in range(3):
        payload, _ = encode(spec, laplace(numel, step), density, step=step)
        assert 0.7 * k <= int(payload.counts[0]) <= 1.3 * k + 1


@pytest.mark.parametrize("spec", ["dgc", "dgc(mode=faithful)"])
def test_selection_is_ordered_by_magnitude(spec: str) -> None:
    for seed in range(5):
        a = laplace(60_000, seed)
        payload, _ = encode(spec, a, 0.01, step=seed)
        count = int(payload.counts[0])
        if spec == "dgc(mode=faithful)" and count == payload.indices.numel():
            continue  # cut by index, which is what the authors do
        kept = torch.zeros(a.numel(), dtype=torch.bool)
        kept[payload.indices[:count].long()] = True
        assert a[kept].abs().min() >= a[~kept].abs().max()


@pytest.mark.parametrize("every", [1, 30])
def test_overflow_keeps_the_largest_survivors(every: int) -> None:
    a = torch.full((100_000,), 1e-6)
    a[::every] = 1.0  # 100 % or 3.3 % of one magnitude, where 1 % is wanted and 1.3 % fits
    a[70_000:70_100] = 2.0
    payload, _ = encode("dgc", a, 0.01)
    slots = payload.indices.numel()
    assert int(payload.counts[0]) == slots == 1300
    assert payload.indices.tolist() == [*range(0, (slots - 100) * every, every), *range(70_000, 70_100)]


def test_underflow_falls_back_to_exact() -> None:
    a = laplace(100_000)
    sampled = sample_runs(torch.arange(a.numel()), 0.02, 0.01, key(0, 0, 0)).reshape(-1)
    a[sampled] *= 1e6  # the sample sees nothing else, so its threshold is far too high
    payload, _ = encode("dgc", a, 0.02)
    exact, _ = encode("topk", a, 0.02)
    assert int(payload.counts[0]) == 2000
    assert torch.equal(payload.indices[:2000], exact.indices)


def test_few_non_zeros_are_all_sent_and_zeros_never() -> None:
    a = torch.zeros(50_000)
    a[[5, 40_000]] = torch.tensor([1e-30, -7.0])
    for spec in ("dgc", "dgc(mode=faithful)"):
        payload, _ = encode(spec, a, 0.01)
        assert int(payload.counts[0]) == 2
        assert payload.indices[:2].tolist() == [5, 40_000]


def test_threshold_that_jumps_over_everything_sends_rotating_elements() -> None:
    a = torch.ones(1000)
    spec = "dgc(mode=faithful,resample=False,max_adaptation=1)"
    sent: set[int] = set()
    for step in range(1000 // 50):
        payload, _ = encode(spec, a, 0.05, step=step)
        assert int(payload.counts[0]) == 50
        sent |= set(payload.indices.tolist())
    assert sent == set(range(1000))


@pytest.mark.parametrize("numel", [1, 33, 1000, 50_000])
@pytest.mark.parametrize("density", [0.001, 0.05, 0.5])
def test_static_form_keeps_the_same_contract(numel: int, density: float) -> None:
    compressor = build("dgc")
    assert isinstance(compressor, DGC)
    for name, a in shapes_of_data(numel).items():
        payload = Payload.allocate(compressor.layout(numel, density))
        compressor._static(a, density, payload, h=2**63 + 12345)
        count, slots = int(payload.counts[0]), payload.indices.numel()
        indices = payload.indices.long()
        assert torch.all(indices[:count].diff() > 0), name
        assert torch.equal(payload.values[:count], a[indices[:count]]), name
        assert not payload.values[count:].any(), name
        assert not indices[count:].any(), name
        assert (count > 0) == bool(a.any()), name
        if name == "normal" and numel == 50_000 and density == 0.05:
            assert 0.7 * density * numel < count <= slots


def test_static_form_picks_what_the_fast_form_picks_inside_the_window() -> None:
    a = laplace(50_000)
    compressor = build("dgc")
    assert isinstance(compressor, DGC)
    fast, ctx = encode(compressor, a, 0.01)
    static = Payload.allocate(compressor.layout(a.numel(), 0.01))
    compressor._static(a, 0.01, static, key(ctx.seed, ctx.tensor_id, ctx.step, ctx.rank))
    assert torch.equal(fast.indices, static.indices)
    assert torch.equal(fast.values, static.values)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("mode=quick", "fast or faithful"),
        ("resample=false", "no effect in mode=fast"),
        ("upper=2", "no effect in mode=fast"),
        ("max_adaptation=3", "no effect in mode=fast"),
        ("mode=faithful,capacity=2", "no effect in mode=faithful"),
        ("mode=faithful,sample_fraction=0.001", "at least 0.01"),
        ("sample_fraction=0", "sample_fraction"),
        ("lower=1.5", "lower"),
        ("capacity=0.5", "capacity"),
        ("mode=faithful,max_adaptation=-1", "negative"),
        ("value_dtype=float64", "value_dtype"),
    ],
)
def test_options_without_effect_are_refused(options: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as error:
        build(f"dgc({options})")
    assert "\n" not in str(error.value)
