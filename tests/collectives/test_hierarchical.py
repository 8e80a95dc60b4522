"""Hierarchical all-reduce: its golden case phase by phase, any number of ranks and nodes, traffic, refusals."""

import random
from typing import Any

import pytest
import torch
from collectives import golden, work_hierarchical
from plan.instances import affine_costs, instance_a
from runtime import work as runtime_work
from runtime.ranks import Ranks

from ssfx.collectives import Load, collectives
from ssfx.collectives.hierarchical import node_size
from ssfx.collectives.primitives import split_sizes
from ssfx.core.errors import ConfigError
from ssfx.schemes.make_plan import make_plan
from ssfx.simulator.pricing.prices import Prices

WORLDS = (1, 2, 3, *(pytest.param(p, marks=pytest.mark.slow) for p in (4, 5, 6)))


@pytest.mark.slow
@pytest.mark.parametrize("name", golden.of_scheme("dense_hierarchical"))
def test_golden_case_phase_by_phase(ranks: Ranks, name: str) -> None:
    params, expected = golden.CASES[name]["params"], golden.CASES[name]["expected"]
    world, size, numel = params["P"], params["g"], params["n"]
    data = golden.CASES[name]["inputs"]["x"]
    assert split_sizes(numel, size) == expected["shard_sizes"]
    for rank, (before, after, left) in enumerate(ranks.run(work_hierarchical.by_phase, world, size, data)):
        assert before == expected["after_intra_reduce_scatter"][rank]
        assert after == expected["after_inter_all_reduce"][rank]
        assert left == 2 * (params["G"] - 1) * 4 * numel // world
    spec = f"hierarchical_all_reduce(ranks_per_node={size})"
    for total, _ in ranks.run(work_hierarchical.summed, world, spec, data, "float32"):
        assert total.tolist() == expected["sum"]


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_any_shape_of_nodes_leaves_the_sum_in_place(ranks: Ranks, world: int, dtype: str) -> None:
    rng = random.Random(world)
    item_bytes = getattr(torch, dtype).itemsize
    for size in [0, *(g for g in range(1, world + 1) if world % g == 0)]:
        spec = f"hierarchical_all_reduce(ranks_per_node={size})"
        for numel in (1, 5, 12, 257):
            data = [[float(rng.randint(-16, 16)) for _ in range(numel)] for _ in range(world)]
            expected = torch.tensor(data).sum(0).to(getattr(torch, dtype))
            results = ranks.run(work_hierarchical.summed, world, spec, data, dtype)
            assert all(torch.equal(total, expected) for total, _ in results)
            load = Load(numel, item_bytes * numel, numel, world)
            assert collectives.build(spec).traffic(load) == results[0][1]
            ring = 2 * (world - 1) * item_bytes * numel  # every shape sends what a ring does, over all ranks
            assert sum(sent.sent_bytes for _, sent in results) == ring


def test_replicas_are_equal_to_the_last_bit(ranks: Ranks) -> None:
    data = torch.randn(3, 1001, generator=torch.Generator().manual_seed(1)).tolist()
    totals = [t for t, _ in ranks.run(work_hierarchical.summed, 3, "hierarchical_all_reduce", data, "float32")]
    assert all(torch.equal(total, totals[0]) for total in totals)
    rows = torch.tensor(data)
    assert torch.equal(totals[0], rows[0] + rows[1] + rows[2])


def test_the_time_is_that_of_the_specification() -> None:
    numel, size, nodes = 96_000, 8, 4
    costs = affine_costs(size * nodes, alpha_s=1e-5, beta=1e-9)
    nbytes = 4 * numel
    predicted_s = Prices(costs).load_s(
        "hierarchical_all_reduce(ranks_per_node=8)", None, Load.dense(nbytes, size * nodes)
    )
    inside_s = 2 * (size - 1) * (1e-5 + nbytes / size * 1e-9)
    across_s = 2 * (nodes - 1) * (1e-5 + nbytes / size / nodes * 1e-9)
    assert predicted_s == pytest.approx(inside_s + across_s)


@pytest.mark.parametrize(("world", "size"), [(1, 1), (6, 6), (7, 7), (12, 6), (13, 1), (16, 8), (4096, 8)])
def test_the_usual_node_is_the_largest_divisor_up_to_eight(world: int, size: int) -> None:
    assert node_size(0, world) == size
    plan = make_plan("hierarchical", instance_a(), affine_costs(world))
    spec = f"hierarchical_all_reduce(ranks_per_node={size})"
    assert {lane.collective for _, lane in plan.lanes()} == {spec}


@pytest.mark.parametrize(("size", "nearest"), [(4, 3), (5, 6), (8, 6), (100, 6)])
def test_nodes_that_ranks_do_not_fill_are_refused_with_the_nearest(size: int, nearest: int) -> None:
    message = f"6 ranks do not fill nodes of {size}; use ranks_per_node={nearest}, or scheme=ddp"
    with pytest.raises(ConfigError, match=message):
        make_plan("hierarchical", instance_a(), affine_costs(6), {"ranks_per_node": size})
    with pytest.raises(ConfigError, match="must not be negative"):
        make_plan("hierarchical", instance_a(), affine_costs(6), {"ranks_per_node": -1})
    with pytest.raises(ConfigError, match="must not be negative"):
        collectives.build("hierarchical_all_reduce(ranks_per_node=-1)")


@pytest.mark.parametrize(
    ("world", "size"), [(2, 1), (2, 2), (3, 3), *(pytest.param(4, g, marks=pytest.mark.slow) for g in (1, 2, 4))]
)
def test_training_equals_torch_ddp(ranks: Ranks, world: int, size: int) -> None:
    options: dict[str, Any] = {"scheme": "hierarchical", "ranks_per_node": size, "first_bucket_bytes": 8000}
    assert max(ranks.run(runtime_work.density_one_equals_ddp, world, "mlp", options)) < 2e-6
