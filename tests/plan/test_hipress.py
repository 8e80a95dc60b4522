"""HiPress: SeCoPa's decisions and messages."""

import random
from typing import Any

import numpy as np
import pytest
from plan.instances import affine_costs, instance_a, make_profile, random_costs
from plan.options import paper_plan as make_plan

from ssfx.planning.costs import Costs
from ssfx.planning.plan import Plan
from ssfx.schemes.hipress import partition_counts, pays
from ssfx.simulator.pricing.timeline import evaluate

A, COSTS = instance_a(), affine_costs()
TOPK = {"compressor": "topk"}


def packed(numel: list[int], costs: Costs, ratio: float = 0.02) -> list[bool]:
    sizes = np.array(numel, dtype=float)
    return pays(sizes, 4 * sizes, 4 * ratio * sizes, costs).tolist()


def lanes(plan: Plan) -> list[tuple[str, list[int]]]:
    return [(lane.collective, [plan.order[name] for name in lane.tensors]) for _, lane in plan.lanes()]


def ms(value: float, digits: int = 4) -> Any:
    return pytest.approx(value * 1e-3, abs=0.6e-3 * 10**-digits)


def test_every_number_of_partitions_is_tried_up_to_64() -> None:
    assert partition_counts(64).tolist() == list(range(1, 65))
    many = partition_counts(4096).tolist()
    assert many[:64] == list(range(1, 65))
    assert many[-1] == 4096
    assert len(many) <= 128
    assert many == sorted(set(many))
    assert partition_counts(65).tolist() == list(range(1, 66))


def test_payloads_that_are_not_smaller_are_never_sent() -> None:
    free = affine_costs(encode=(0, 0), decode=(0, 0))
    for density in (0.5, 0.9):
        plan = make_plan("hipress", A, free, {**TOPK, "density": density})
        assert {collective for collective, _ in lanes(plan)} == {"all_reduce"}
    assert "all_gather" in {collective for collective, _ in lanes(make_plan("hipress", A, free, TOPK))}


def test_messages_and_time_on_instance_a() -> None:
    plan = make_plan("hipress", A, COSTS, TOPK)
    assert lanes(plan) == [
        ("all_gather", [1, 3]),
        ("all_reduce", [0, 2, 4]),
        ("all_gather", [5, 7]),
        ("all_reduce", [6, 8, 9, 10, 11]),
    ]
    line = evaluate(plan, A, COSTS)
    assert [lane.ready_s for lane in line.lanes] == [ms(ready, 2) for ready in (4.49, 4.59, 10.44, 12.64)]
    assert line.total_s == ms(15.250, 3)
    assert plan.notes == (("predicted_ms", "15.2497"), ("gradients", "4 of 12 compressed"))


@pytest.mark.parametrize("compressor", ["fp16", "qsgd", "powersgd", "randomk"])
def test_any_compressor_will_do(compressor: str) -> None:
    plan = make_plan("hipress", A, COSTS, {"compressor": compressor, "rule": "threshold"})
    assert sum(not segment.dense for _, lane in plan.lanes() for segment in lane.segments) == 4


def test_the_formula_on_instance_a() -> None:
    assert np.flatnonzero(packed(list(A.numel), COSTS)).tolist() == [1, 3, 5, 7]
    sizes = list(range(200_000, 700_000, 100))
    assert sizes[packed(sizes, COSTS).index(True)] / 1e6 == pytest.approx(0.322, abs=0.6e-3)


def test_the_formula_for_every_number_of_partitions() -> None:
    rng = random.Random(9)
    for _ in range(60):
        p = rng.randint(2, 20)
        costs, m = random_costs(rng, p), int(10 ** rng.uniform(0, 7))
        dense, compressed = [], []
        for k in range(1, min(p, m) + 1):
            gather_s = [2 * costs.exchange_s("all_gather", nbytes / k) for nbytes in (4 * m, 0.02 * 4 * m)]
            calls_s = min(k + 1, p) * costs.encode(m / k) + min(p - 1 + k, 2 * (p - 1)) * costs.decode(m / k)
            dense.append(gather_s[0])
            compressed.append(gather_s[1] + calls_s)
        assert packed([m], costs) == [min(compressed) < min(dense)]


def test_a_larger_gradient_is_never_sent_dense_again() -> None:
    sizes = sorted({int(10 ** (exponent / 40)) for exponent in range(340)})
    rng = random.Random(4)
    for costs in (random_costs(rng, p) for p in (2, 4, 8, 32) for _ in range(10)):
        found = packed(sizes, costs)
        assert found == sorted(found)


def test_messages_are_closed_by_size_and_thresholds_are_those_of_the_example_scripts() -> None:
    profile = make_profile([20_000_000] * 3 + [262_144, 262_145], [1e-6] * 5)
    plan = make_plan("hipress", profile, COSTS, {**TOPK, "rule": "threshold"})
    assert lanes(plan) == [
        ("all_gather", [0]),
        ("all_gather", [1]),
        ("all_gather", [2]),
        ("all_reduce", [3]),
        ("all_gather", [4]),
    ]
    assert all(len(lane.segments) == len(lane.tensors) for _, lane in plan.lanes())
