"""SIDCo with a fixed ratio per stage, and with a first ratio that moves."""

import math

import numpy as np
import pytest
import torch
from compressors.kit import context

from ssfx.compressors import Payload, build
from ssfx.compressors.batch import Batch, compress
from ssfx.compressors.blank import blank_batch
from ssfx.compressors.kernels import kernels
from ssfx.compressors.memories import memories
from ssfx.compressors.sidco import (
    CALLS,
    CHANGES,
    COLUMNS,
    EXTRA,
    FIRST_COLUMNS,
    KNOWN,
    PREVIOUS,
    STEPS,
    SUM,
    TURNED,
    Adaptation,
    SIDCo,
    adapted,
    adapted_first,
    first_ratios,
    max_stages,
    middle_stages,
)


def threshold_of(spec: str, a: torch.Tensor, density: float) -> float:
    codec = build(spec)
    assert isinstance(codec, SIDCo)
    batch = Batch.single(a, Payload.allocate(codec.layout(a.numel(), density)), context(density))
    return codec.thresholds(batch, kernels(a.device)).item()


def fitted_in_turn(a: torch.Tensor, density: float, first: float, later: float) -> tuple[float, int]:
    """Return the threshold of exponential fits, one tail after the other, and how many there were; by the book."""
    y = a.double().abs().numpy()
    if density >= first:
        return float(-y.mean() * math.log(density)), 1
    rest = density / first
    loops = math.ceil(math.log(rest) / math.log(later) - 1e-9)
    level = -y.mean() * math.log(first)
    for loop in range(loops):
        y = y[y > level]
        ratio = rest / later ** (loops - 1) if loop == loops - 1 else later
        level = y.min() - (y.mean() - y.min()) * math.log(ratio)
    return float(level), 1 + loops


@pytest.mark.parametrize("density", [0.5, 0.25, 0.1, 0.0625, 0.01, 0.001])
@pytest.mark.parametrize("later", [0.25, 0.5])
def test_every_stage_keeps_its_ratio_and_the_last_one_the_rest(density: float, later: float) -> None:
    a = torch.from_numpy(np.random.default_rng(0).laplace(size=100_000).astype(np.float32))
    expected, number = fitted_in_turn(a, density, 0.25, later)
    assert threshold_of(f"sidco(later_ratio={later})", a, density) == pytest.approx(expected, rel=1e-6)
    if number == 1:
        assert threshold_of("sidco(stages=1)", a, density) == pytest.approx(expected, rel=1e-6)
    assert (a.abs() >= expected).sum().item() == pytest.approx(100_000 * density, rel=0.25)


def test_stages_of_equal_ratio_are_the_fixed_stages_that_come_out_even() -> None:
    a = torch.from_numpy(np.random.default_rng(1).standard_t(3, size=50_000).astype(np.float32))
    density = 0.25**3
    for family in ("exponential", "gpareto", "gamma_gpareto"):
        even = threshold_of(f"sidco(family={family},later_ratio=0.25)", a, density)
        assert even == pytest.approx(threshold_of(f"sidco(family={family},stages=3)", a, density), rel=1e-9)


def test_segments_of_a_batch_have_stages_of_their_own() -> None:
    codec = build("sidco(later_ratio=0.25,capacity=2)")
    batch = blank_batch(codec, [[(20_000,)], [(5000,)]], 0.01, memories.build("none"))
    mostly_zero = torch.zeros(5000)
    mostly_zero[:300] = torch.arange(1, 301) / 100  # 300 of 5000 are not zero: fewer stages are enough for them
    grads = [torch.randn(20_000, generator=torch.Generator().manual_seed(0)), mostly_zero]
    batch.grads = list(grads)
    compress(codec, batch)
    for part, grad in zip(batch.parts, grads, strict=True):
        alone = blank_batch(codec, [[(part.numel,)]], 0.01, memories.build("none"))
        alone.grads = [grad]
        compress(codec, alone)
        assert torch.equal(alone.payload.values, batch.share(part).values)
    assert not codec.state_shapes([(5000,)])


HOW = Adaptation("reverse", window=1, tolerance=0.2)
MIDDLE = torch.tensor([2.0])


def after_windows(ratios: list[float], density: float = 0.0625) -> list[tuple[float, int]]:
    """Return (first ratio, stages) after each window with these mean ratios, for at most four stages."""
    most = torch.tensor([max_stages(density)])
    stage, first, seen = torch.zeros(1, COLUMNS), torch.zeros(1, FIRST_COLUMNS), []
    for ratio in ratios:
        now = torch.tensor([ratio])
        changed = adapted(stage, now, most, HOW)
        first, stage = adapted_first(first, stage, changed, now, MIDDLE, 0.25, HOW)
        seen.append((round(first_ratios(first, 0.25).item(), 6), 1 + int(stage[0, EXTRA])))
    return seen


def test_the_first_ratio_moves_when_stages_do_not_help() -> None:
    assert middle_stages(0.0625) == 2
    assert after_windows([1.0, 1.1, 1.15]) == [(0.25, 1)] * 3, "inside the window nothing moves"
    # the second change of the stages made it worse: less is kept first, and the stages start from the middle
    assert after_windows([3.0, 4.0])[-1] == (0.2, 2)
    assert after_windows([0.5, 0.4])[-1] == (0.3, 2)
    assert after_windows([3.0, 2.0, 1.5])[-1][0] == 0.25, "it gets better: stages go on alone"
    # two more changes are needed before the next step
    assert [first for first, _ in after_windows([3.0, 4.0, 5.0, 6.0])] == [0.25, 0.2, 0.2, 0.15]


def test_from_a_bound_it_goes_back_and_turns() -> None:
    stage, first = torch.zeros(1, COLUMNS), torch.zeros(1, FIRST_COLUMNS)
    stage[0, KNOWN], stage[0, PREVIOUS] = 1, 2.0
    first[0, STEPS], first[0, CHANGES] = 5, 3
    assert first_ratios(first, 0.25).item() == pytest.approx(0.5)
    now = torch.tensor([3.0])
    back, kept = adapted_first(first, stage, adapted(stage, now, torch.tensor([4]), HOW), now, MIDDLE, 0.25, HOW)
    assert first_ratios(back, 0.25).item() == 0.25
    assert back[0, TURNED] == 1
    assert kept[0, PREVIOUS] == 3.0
    back[0, CHANGES] = 3
    worse = torch.tensor([4.0])
    moved, _ = adapted_first(back, kept, adapted(kept, worse, torch.tensor([4]), HOW), worse, MIDDLE, 0.25, HOW)
    assert first_ratios(moved, 0.25).item() == pytest.approx(0.3), "too much was sent, and now more is kept first"
    far = torch.tensor([[9.0, 0.0, 0.0], [-9.0, 0.0, 0.0]])
    assert first_ratios(far, 0.25).tolist() == [0.5, 0.05]


def test_nothing_moves_inside_a_window() -> None:
    how = Adaptation("robust", window=5, tolerance=0.2)
    stage, first = torch.zeros(1, COLUMNS), torch.zeros(1, FIRST_COLUMNS)
    stage[0, KNOWN], stage[0, PREVIOUS], first[0, CHANGES] = 1, 1.0, 9
    for call in range(1, 5):
        now = torch.tensor([5.0])
        first, stage = adapted_first(first, stage, adapted(stage, now, torch.tensor([4]), how), now, MIDDLE, 0.25, how)
        assert first.tolist() == [[0, 0, 9]]
        assert stage[0, CALLS] == call
        assert stage[0, SUM] == 5 * call


def test_an_adapted_first_ratio_is_state_of_its_segment_and_changes_what_is_sent() -> None:
    codec = build("sidco(adapt_first=True,window=1,capacity=100)")
    assert set(codec.state_shapes([(100,)])) == {"stages", "first_ratio"}
    batch = blank_batch(codec, [[(20_000,)], [(20_000,)]], 0.01, memories.build("none"))
    torch.manual_seed(0)
    heavy = torch.distributions.StudentT(1.5).sample((20_000,))
    moved = False
    for step in range(40):
        scale = 1 + step % 3  # a threshold that does not follow would be off
        batch.step, batch.grads = step, [heavy ** (1 + step % 5) * scale, torch.randn(20_000)]
        compress(codec, batch)
        moved = moved or bool(batch.states[0]["first_ratio"][STEPS] != 0)
        ratios = first_ratios(torch.stack([state["first_ratio"] for state in batch.states]), 0.25)
        assert torch.all((ratios >= 0.05) & (ratios <= 0.5))
    assert moved
    assert not torch.equal(batch.states[0]["first_ratio"], batch.states[1]["first_ratio"])
