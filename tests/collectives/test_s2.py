"""The count sketch of S2 Reducer: golden cases, linearity, unbiased estimates, what ranks keep, traffic."""

import random
from typing import Any

import pytest
import torch
from collectives import golden, work_blocks
from runtime.ranks import Ranks

from ssfx.collectives import Load, collectives
from ssfx.collectives.s2_sketch import Hashes, draw, estimate, insert
from ssfx.core.errors import ConfigError

torch.set_num_threads(1)
GOLDEN = golden.of_scheme("s2_reducer")


def hashes_of(case: dict[str, Any]) -> Hashes:
    (row,) = case["params"]["hash_rows"]
    return Hashes(row["a"], row["b"], tuple(row["q"]))


def spec_of(case: dict[str, Any]) -> str:
    """Return the reducer with the case's blocks and columns; its options give columns as a ratio."""
    params = case["params"]
    ratio = params["cols"] / (params["K"] * params["block_width"])
    return f"s2_sketch(block={params['block_width']},ratio={ratio})"


def quarters(count: int, seed: int) -> torch.Tensor:
    rng = random.Random(seed)
    return torch.tensor([rng.choice([0, *range(-40, 41)]) / 4 for _ in range(count)])


def sketch_of(values: torch.Tensor, hashes: Any, cols: int) -> torch.Tensor:
    sketch = torch.zeros(cols)
    insert(sketch, hashes, torch.arange(len(values)), values)
    return sketch


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_hash_functions_and_sketches(name: str) -> None:
    case = golden.CASES[name]
    params, expected, hashes = case["params"], case["expected"], hashes_of(case)
    at = torch.arange(params["n"])
    assert [hashes.buckets(at, params["cols"]).tolist()] == expected["buckets"]
    assert [hashes.signs(at).tolist()] == expected["signs"]
    sent = torch.tensor(case["inputs"]["acc"]) - torch.tensor(expected["residual"])
    for values, local in zip(sent, expected["local_sketch"], strict=True):
        assert [sketch_of(values, hashes, params["cols"]).tolist()] == local
    assert [sketch_of(sent.sum(0), hashes, params["cols"]).tolist()] == expected["sketch_sum"]
    assert sent.sum(0).tolist() == expected["true_sum_of_sent"]


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_exchange(ranks: Ranks, name: str) -> None:
    case = golden.CASES[name]
    params, expected, acc = case["params"], case["expected"], case["inputs"]["acc"]
    width = params["block_width"]
    acc = [[float(value) for value in row] for row in acc]
    kept = params["K"] * width
    results = ranks.run(work_blocks.sketched, params["P"], spec_of(case), acc, kept, hashes_of(case))
    union = [i for i in range(params["n"]) if expected["bitmap_union"][i // width]]
    for rank, (total, indices, residual) in enumerate(results):
        assert total.tolist() == expected["estimate_sum"]
        assert indices == union
        assert residual.tolist() == expected["residual"][rank]
        gone = {i // width for i in range(params["n"]) if residual[i] != acc[rank][i]}
        assert sorted(gone) == expected["selected_blocks"][rank]


def test_the_sum_of_sketches_is_the_sketch_of_the_sum() -> None:
    hashes = draw(seed=3, buffer=100, step=7)
    rows = [quarters(100, seed) for seed in range(4)]
    parts = [sketch_of(row, hashes, 11) for row in rows]
    assert torch.equal(torch.stack(parts).sum(0), sketch_of(torch.stack(rows).sum(0), hashes, 11))


def test_estimates_are_unbiased_and_as_noisy_as_the_formula_says() -> None:
    values, cols, runs = quarters(24, seed=0), 12, 10_000
    at = torch.arange(len(values))
    said = torch.empty(runs, len(values))
    for run in range(runs):
        hashes = draw(seed=run, buffer=24, step=0)
        said[run] = estimate(sketch_of(values, hashes, cols), hashes, at)
    deviation = said.std(0) / runs**0.5
    assert bool(((said.mean(0) - values).abs() <= 4 * deviation).all())
    noise = float((said - values).square().sum(1).mean())
    assert noise == pytest.approx((len(values) - 1) / cols * float(values.square().sum()), rel=0.1)


def test_an_element_alone_in_its_bucket_is_exact() -> None:
    values = quarters(40, seed=1)
    hashes, at, cols = draw(0, 40, 0), torch.arange(40), 301
    buckets = hashes.buckets(at, cols)
    alone = torch.bincount(buckets, minlength=cols)[buckets] == 1
    assert int(alone.sum()) > 20
    assert torch.equal(estimate(sketch_of(values, hashes, cols), hashes, at)[alone], values[alone])


def test_hash_functions_differ_by_seed_buffer_and_step_and_stay_in_range() -> None:
    drawn = {draw(*key) for key in ((0, 1, 2), (1, 1, 2), (0, 2, 2), (0, 1, 3))}
    assert len(drawn) == 4
    assert draw(0, 1, 2) == draw(0, 1, 2)
    rows = [draw(0, 0, step) for step in range(200)]
    assert len({row.a for row in rows}) == 200
    far = torch.tensor([0, 1, 2**31 - 2])
    for row in rows:
        assert 1 <= row.a < 2**31 - 1
        buckets = row.buckets(far, 7)
        assert 0 <= int(buckets.min()) <= int(buckets.max()) < 7
        assert set(row.signs(far).tolist()) <= {-1.0, 1.0}
        exact = [(row.a * i + row.b) % (2**31 - 1) % 7 for i in far.tolist()]
        assert buckets.tolist() == exact


@pytest.mark.parametrize("world", [1, 2, 3, pytest.param(5, marks=pytest.mark.slow)])
@pytest.mark.parametrize("numel", [1, 7, 64, 150])
def test_ranks_keep_all_but_their_largest_blocks_and_agree_on_the_sketch_of_the_rest(
    ranks: Ranks, world: int, numel: int
) -> None:
    block, kept = 4, 10  # three blocks, the last one short
    rows = [quarters(numel, seed=rank) for rank in range(world)]
    rows[0][: numel // 2] = 0
    acc = [row.tolist() for row in rows]
    spec = f"s2_sketch(block={block},ratio=1.0)"
    sent, union = torch.zeros(numel), set()
    results = ranks.run(work_blocks.sketched, world, spec, acc, kept, None, 5)
    for rank, (_, _, residual) in enumerate(results):
        row = acc[rank]
        norms = [sum(v * v for v in row[lo : lo + block]) for lo in range(0, len(row), block)]
        ranked = sorted(range(len(norms)), key=lambda j: (-norms[j], j))[:3]
        chosen = sorted(j for j in ranked if norms[j])
        mine = torch.tensor([i // block in chosen for i in range(numel)])
        assert torch.equal(residual, torch.where(mine, 0.0, rows[rank]))
        sent += torch.where(mine, rows[rank], 0.0)
        union |= set(chosen)
    hashes = draw(0, numel, 5)
    _, _, cols = collectives.build(spec).shape(numel, kept)
    at = torch.tensor([i for i in range(numel) if i // block in union], dtype=torch.int64)
    expected = torch.zeros(numel)
    expected[at] = estimate(sketch_of(sent, hashes, cols), hashes, at)
    for total, indices, _ in results:
        assert indices == at.tolist()
        assert torch.equal(total, expected)


def test_every_step_has_hash_functions_of_its_own(ranks: Ranks) -> None:
    acc = [quarters(64, seed=rank).tolist() for rank in range(2)]
    spec = "s2_sketch(block=4,ratio=0.25)"
    first, again, later = (ranks.run(work_blocks.sketched, 2, spec, acc, 32, None, step)[0][0] for step in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, later)


@pytest.mark.parametrize("world", [2, 3, 5, 64])
def test_planned_traffic_is_what_is_sent(world: int) -> None:
    reducer = collectives.build("s2_sketch(block=8,ratio=0.7)")
    load = Load(1000, 8 * 60, 60, world)
    cols = int(0.7 * 64)  # 60 elements are 8 blocks
    assert [phase.size for phase in reducer.phases(load)] == [4 * cols, 125]
    assert reducer.traffic(load).messages == 4 * (world - 1)


@pytest.mark.parametrize("options", ["block=0", "ratio=0.0", "ratio=-1.0"])
def test_impossible_options_are_refused(options: str) -> None:
    with pytest.raises(ConfigError, match=r"collective s2_sketch: .* must be"):
        collectives.build(f"s2_sketch({options})")
