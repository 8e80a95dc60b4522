"""What holds for every reducer: mass is conserved, ranks agree, traffic is as described, one bad rank stops all."""

import random

import pytest
import torch
from collectives import work_reducers
from collectives.work_reducers import Step
from runtime.ranks import Ranks

from ssfx.collectives import Reducer, collectives

REDUCERS = [entry.name for entry in collectives if issubclass(entry.cls, Reducer)]
LOSSY: set[str] = {"s2_sketch", "quantized_all_reduce"}
"""Their sum is an estimate, or rounded. They have tests of their own."""
WORLDS = (1, 2, 3, pytest.param(4, marks=pytest.mark.slow), pytest.param(5, marks=pytest.mark.slow))


def gradients(world: int, numel: int, steps: int, seed: int) -> list[list[list[float]]]:
    """Return quarters with some zeros and ties, so that sums are exact in any order."""
    rng = random.Random(seed)
    return [
        [[rng.choice([0, 0, *range(-40, 41)]) / 4 for _ in range(numel)] for _ in range(world)] for _ in range(steps)
    ]


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", sorted(set(REDUCERS) - LOSSY))
def test_mass_is_conserved_exactly_on_any_size(ranks: Ranks, name: str, world: int) -> None:
    for numel in sorted({1, world, 12, 1000}):
        for kept in sorted({1, max(1, numel // 10), numel}):
            grads = gradients(world, numel, 3, seed=numel + kept)
            reports = ranks.run(work_reducers.steps, world, name, grads, kept)
            before = torch.zeros(numel)
            for step, rows in enumerate(zip(*reports, strict=True)):
                put_in = torch.tensor(grads[step]).sum(0) + before
                before = torch.stack([row.residual for row in rows]).sum(0)
                assert torch.equal(put_in, rows[0].total + before), (numel, kept, step)
                agree(rows)


def agree(rows: tuple[Step, ...]) -> None:
    """Every rank has the same sum, and sent what its reducer says."""
    for row in rows:
        assert torch.equal(row.total, rows[0].total)
        assert row.indices == rows[0].indices
        assert row.counted == row.described


@pytest.mark.parametrize("world", WORLDS[1:])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", REDUCERS)
def test_one_bad_rank_is_seen_by_all(ranks: Ranks, name: str, bad: float, world: int) -> None:
    for culprit in {0, world - 1}:
        grads = gradients(world, 40, 2, seed=1)
        grads[1][culprit][7] = bad
        for first, second in ranks.run(work_reducers.steps, world, name, grads, 4):
            assert bool(torch.isfinite(first.total).all())
            assert bool(torch.isnan(second.total).any())


@pytest.mark.parametrize("name", REDUCERS)
def test_zeros_everywhere_and_on_one_rank_are_no_trouble(ranks: Ranks, name: str) -> None:
    grads = gradients(3, 20, 2, seed=2)
    grads[0] = [[0.0] * 20] * 3
    grads[1][0] = [0.0] * 20
    for first, second in ranks.run(work_reducers.steps, 3, name, grads, 3):
        assert not first.total.any()
        assert second.counted == second.described


@pytest.mark.parametrize("name", REDUCERS)
def test_phases_name_primitives_and_grow_with_the_load(name: str) -> None:
    from ssfx.collectives import Load

    reducer = collectives.build(name)
    small, large = Load(10_000, 800, 100, 4), Load(1_000_000, 80_000, 10_000, 4)
    assert {phase.primitive for phase in reducer.phases(small)} <= {
        "all_reduce",
        "all_gather",
        "all_to_all",
        "reduce_scatter",
        "broadcast",
        "send",
        "encode",
        "decode",
    }
    assert 0 < reducer.traffic(small).sent_bytes < reducer.traffic(large).sent_bytes
