"""DGC: how many elements it keeps, what happens outside the window, and its options."""

import pytest
import torch
from compressors.kit import encode

from ssfx.compressors import build, dgc, k_ceil
from ssfx.compressors.dgc import TAIL
from ssfx.compressors.dgc_faithful import FaithfulSelection
from ssfx.compressors.kernels import Bound, Rule
from ssfx.compressors.kernels.cpu.sampling import RUN, jitter, sample_of
from ssfx.core.errors import ConfigError
from ssfx.wire.batch import key


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
    a = torch.full((200_000,), 1e-6)
    a[::every] = 1.0  # 100 % or 3.3 % of one magnitude, where 1 % is wanted and 1.3 % fits
    a[170_000:170_100] = 2.0
    payload, _ = encode("dgc", a, 0.01)
    slots = payload.indices.numel()
    assert int(payload.counts[0]) == slots == 2600
    assert payload.indices.tolist() == [*range(0, (slots - 100) * every, every), *range(170_000, 170_100)]


def test_underflow_falls_back_to_exact() -> None:
    a = laplace(100_000)
    sample = sample_of(100_000, Bound(1600, 2000, 2600), Rule((), tail=TAIL, sample_fraction=0.01))
    for run in range(sample.runs):
        at = run * sample.stride + jitter(key(0, 0, 0) & 0xFFFFFFFF, run, sample.stride - RUN + 1)
        a[at : at + RUN] *= 1e6  # the sample sees nothing else, so its threshold is far too high
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


def test_threshold_that_jumps_over_everything_sends_rotating_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = FaithfulSelection(torch.empty(0, dtype=torch.int64), ())
    monkeypatch.setattr(dgc, "select", lambda *_: nothing)
    a = torch.ones(1000)
    sent: set[int] = set()
    for step in range(1000 // 50):
        payload, _ = encode("dgc(mode=faithful)", a, 0.05, step=step)
        assert int(payload.counts[0]) == 50
        sent |= set(payload.indices.tolist())
    assert sent == set(range(1000))


@pytest.mark.parametrize(
    ("options", "words"), [("mode=quick", "fast or faithful"), ("value_dtype=float64", "value_dtype")]
)
def test_unknown_modes_and_types_are_refused(options: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as error:
        build(f"dgc({options})")
    assert "\n" not in str(error.value)
