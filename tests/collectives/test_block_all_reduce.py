"""OmniReduce's sums on real groups: exact sums, exact traffic."""

import math
import random

import pytest
import torch
from collectives import golden, work_blocks
from runtime.ranks import Ranks

from ssfx.collectives import Load, collectives
from ssfx.core.errors import ConfigError

CASE = golden.CASES["omnireduce_P3_bs2_S2"]
WORLDS = (1, 2, 3, pytest.param(5, marks=pytest.mark.slow))


def rows_with_zeros(world: int, numel: int, block: int, share: float, seed: int) -> list[list[float]]:
    """Return a row per rank, of quarters in about `share` of the blocks and zeros elsewhere."""
    rng = random.Random(seed)
    filled = [[rng.random() < share for _ in range(0, numel, block)] for _ in range(world)]
    return [[rng.randint(-40, 40) / 4 if blocks[i // block] else 0.0 for i in range(numel)] for blocks in filled]


def union_of(rows: list[list[float]], block: int) -> list[int]:
    """Return the elements of the blocks that are not zero in some row."""
    blocks = {i // block for row in rows for i, value in enumerate(row) if value != 0}
    return [i for i in range(len(rows[0])) if i // block in blocks]


def test_golden_emulation(ranks: Ranks) -> None:
    block, rows = CASE["params"]["block_size"], [[float(value) for value in row] for row in CASE["inputs"]["x"]]
    spec = f"block_all_reduce(block={block})"
    union = union_of(rows, block)
    assert sorted({i // block for i in union}) == CASE["expected"]["union_blocks"]
    for rank, (total, counted, _) in enumerate(ranks.run(work_blocks.summed, 3, spec, rows)):
        assert total.tolist() == CASE["expected"]["sum"]
        assert counted == collectives.build(spec).sent(len(rows[0]), 4, len(union), 3, rank)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("numel", [1, 15, 16, 17, 100])
def test_the_sum_is_the_dense_one_and_traffic_as_described(ranks: Ranks, world: int, numel: int) -> None:
    spec = "block_all_reduce(block=16)"
    for share in (0.0, 0.3, 1.0):
        rows = rows_with_zeros(world, numel, 16, share, seed=numel)
        union = union_of(rows, 16)
        for rank, (total, counted, in_place) in enumerate(ranks.run(work_blocks.summed, world, spec, rows)):
            assert in_place
            assert torch.equal(total, torch.tensor(rows).sum(0))
            assert counted == collectives.build(spec).sent(numel, 4, len(union), world, rank), (share, rank)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_any_floating_dtype(ranks: Ranks, dtype: str) -> None:
    rows = rows_with_zeros(3, 50, 8, 0.4, seed=2)
    item_bytes = getattr(torch, dtype).itemsize
    for rank, (total, counted, _) in enumerate(
        ranks.run(work_blocks.summed, 3, "block_all_reduce(block=8)", rows, dtype)
    ):
        assert total.dtype == getattr(torch, dtype)
        assert torch.equal(total.double(), torch.tensor(rows).sum(0).double())
        union = len(union_of(rows, 8))
        assert counted == collectives.build("block_all_reduce(block=8)").sent(50, item_bytes, union, 3, rank)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("spec", ["block_all_reduce(block=8)", "row_sparse(width=8)"])
def test_what_is_not_finite_reaches_every_rank(ranks: Ranks, spec: str, bad: float) -> None:
    rows = rows_with_zeros(3, 48, 8, 0.0, seed=0)
    rows[1][17] = bad
    for total, _, _ in ranks.run(work_blocks.summed, 3, spec, rows):
        assert torch.equal(total.isfinite().logical_not().nonzero().view(-1), torch.tensor([17]))


@pytest.mark.parametrize("world", [2, 3, 64])
def test_planned_traffic(world: int) -> None:
    collective = collectives.build("block_all_reduce")
    load = Load.dense(4 * 256 * 192, world)
    assert collective.traffic(load) == collective.sent(load.numel, 4, load.numel, world, 0)
    half = collectives.build("block_all_reduce(filled=0.5)")
    assert half.traffic(load) == half.sent(load.numel, 4, load.numel // 2, world, 0)


@pytest.mark.parametrize("options", ["block=0", "filled=0.0", "filled=1.5"])
def test_impossible_options_are_refused(options: str) -> None:
    with pytest.raises(ConfigError, match=r"collective block_all_reduce: .* must be"):
        collectives.build(f"block_all_reduce({options})")
