"""HiPress: SeCoPa's decisions with the authors' constants and ours, messages, and what is refused."""

import random
from typing import Any

import numpy as np
import pytest
from plan.instances import affine_costs, instance_a, make_profile, random_costs
from plan.options import paper_plan as make_plan

from ssfx.collectives import Load
from ssfx.core.errors import ConfigError
from ssfx.planning.plan import Plan
from ssfx.schemes.hipress import Decisions, StepCosts, Topology, authors, decide, fitted, partition_counts
from ssfx.simulator.pricing.timeline import evaluate, exchange_s

A, COSTS = instance_a(), affine_costs()
TOPK = {"compressor": "topk"}


def decisions(
    numel: list[int], steps: StepCosts, world_size: int, topology: Topology = "PS", ratio: float = 1 / 16
) -> Decisions:
    sizes = np.array(numel, dtype=float)
    return decide(sizes, 4 * sizes, 4 * ratio * sizes, world_size, topology, steps)


def lanes(plan: Plan) -> list[tuple[str, list[int]]]:
    return [(lane.collective, [plan.order[name] for name in lane.tensors]) for _, lane in plan.lanes()]


def ms(value: float, digits: int = 4) -> Any:
    return pytest.approx(value * 1e-3, abs=0.6e-3 * 10**-digits)


@pytest.mark.parametrize(
    ("topology", "numel", "compress", "partitions", "dense_ms", "compressed_ms"),
    [
        ("PS", 589_824, False, 4, 1.4417, 1.5348),
        ("PS", 1_179_648, True, 2, 2.2426, 1.7418),
        ("PS", 2_359_296, True, 4, 3.8444, 1.9489),
        ("PS", 102_760_448, True, 4, 140.17, 11.95),
        ("RING", 589_824, False, None, 1.9723, 2.0698),
        ("RING", 1_179_648, True, None, 2.7244, 2.1254),
    ],
)
def test_decisions_of_the_authors_planner(
    topology: Topology, numel: int, compress: bool, partitions: int | None, dense_ms: float, compressed_ms: float
) -> None:
    found = decisions([numel], authors(4), 4, topology)
    assert found.compress.tolist() == [compress]
    assert partitions is None or found.partitions.tolist() == [partitions]
    # The specification prints the constants with four digits, and times computed from more of them.
    assert 1e3 * float(found.dense_s[0]) == pytest.approx(dense_ms, rel=2e-4)
    assert 1e3 * float(found.compressed_s[0]) == pytest.approx(compressed_ms, rel=2e-4)


@pytest.mark.parametrize(
    ("world_size", "topology", "millions", "printed"),
    [(4, "PS", 0.684, 0.74), (4, "RING", 0.673, 0.68), (16, "PS", 2.468, 2.5), (16, "RING", 2.147, 2.3)],
)
def test_break_even_of_the_authors_constants(
    world_size: int, topology: Topology, millions: float, printed: float
) -> None:
    sizes = list(range(100_000, 4_000_000, 500))
    compress = decisions(sizes, authors(world_size), world_size, topology).compress
    found = sizes[int(compress.argmax())] / 1e6
    assert found == pytest.approx(millions, abs=1e-3)
    assert 0.92 * printed < found <= printed  # printed as the next point of a coarse grid


@pytest.mark.parametrize("topology", ["PS", "RING"])
def test_a_larger_gradient_is_never_sent_dense_again(topology: Topology) -> None:
    sizes = sorted({int(10 ** (exponent / 40)) for exponent in range(340)})
    cases = [(authors(p), p, 1 / 16) for p in (4, 8, 16)]
    rng = random.Random(4)
    cases += [(fitted(random_costs(rng, p)), p, 0.02) for p in (2, 4, 8, 32) for _ in range(10)]
    for steps, world_size, ratio in cases:
        compress = decisions(sizes, steps, world_size, topology, ratio).compress.tolist()
        assert compress == sorted(compress)


def test_decisions_on_instance_a() -> None:
    found = decisions(list(A.numel), fitted(COSTS), 8, ratio=0.02)
    assert np.flatnonzero(found.compress).tolist() == [1, 3, 5, 7]
    assert found.partitions[[1, 3, 5, 7]].tolist() == [3, 2, 4, 2]
    times = {1: (11.749, 4.367), 3: (6.152, 3.201), 5: (13.492, 4.687), 7: (3.216, 2.415), 9: (1.748, 1.934)}
    for i, (dense_ms, compressed_ms) in times.items():
        assert float(found.dense_s[i]) == ms(dense_ms, 3)
        assert float(found.compressed_s[i]) == ms(compressed_ms, 3)
    ring = decisions(list(A.numel), fitted(COSTS), 8, "RING", 0.02)
    assert np.flatnonzero(ring.compress).tolist() == [1, 3, 5]


@pytest.mark.parametrize(("topology", "millions"), [("PS", 0.322), ("RING", 0.561)])
def test_break_even_on_instance_a(topology: Topology, millions: float) -> None:
    sizes = list(range(200_000, 700_000, 100))
    compress = decisions(sizes, fitted(COSTS), 8, topology, 0.02).compress
    assert sizes[int(compress.argmax())] / 1e6 == pytest.approx(millions, abs=0.6e-3)


@pytest.mark.parametrize("topology", ["PS", "RING"])
def test_the_formulas_for_every_number_of_partitions(topology: Topology) -> None:
    rng = random.Random(9)
    for _ in range(60):
        p = rng.randint(2, 20)
        costs, m = random_costs(rng, p), int(10 ** rng.uniform(0, 7))

        def gather(nbytes: float, costs: Any = costs) -> float:
            return float(costs.exchange_s("all_gather", nbytes))

        dense, packed = [], []
        for k in range(1, min(p, m) + 1):
            part, payload = 4 * m / k, 0.02 * 4 * m / k
            encode, decode = costs.encode(m / k), costs.decode(m / k)
            if topology == "PS":
                dense.append(2 * gather(part))
                packed.append(2 * gather(payload) + min(k + 1, p) * encode + min(p - 1 + k, 2 * (p - 1)) * decode)
            else:
                dense.append(2 * gather(part))  # 2 (P - 1) hops of 1 / (P - 1) of a gather each
                packed.append(2 * gather(payload) + p * encode + p * decode)
        found = decisions([m], fitted(costs), p, topology, 0.02)
        assert float(found.dense_s[0]) == pytest.approx(min(dense), rel=1e-9)
        assert float(found.compressed_s[0]) == pytest.approx(min(packed), rel=1e-9)
        assert bool(found.compress[0]) == (min(packed) < min(dense))
        assert 1 <= found.partitions[0] <= min(p, m)


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


@pytest.mark.parametrize("alone", [{"bulk_bytes": 1, "sparse_bulk_bytes": 1}, {"bulk_timeout_s": 0}])
def test_without_batching_every_gradient_travels_alone(alone: dict[str, Any]) -> None:
    plan = make_plan("hipress", A, COSTS, {**TOPK, **alone})
    assert [at for _, at in lanes(plan)] == [[i] for i in range(12)]
    assert evaluate(plan, A, COSTS).total_s == ms(14.901, 3)


def test_messages_are_closed_by_size() -> None:
    profile = make_profile([1000] * 10, [1e-6] * 10)
    plan = make_plan("hipress", profile, COSTS, {**TOPK, "bulk_bytes": 9000})
    assert [at for _, at in lanes(plan)] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
    packed = {**TOPK, "rule": "threshold", "compress_min_elems": 0, "sparse_bulk_bytes": 161}
    plan = make_plan("hipress", profile, COSTS, packed)
    assert lanes(plan) == [("all_gather", at) for at in ([0, 1, 2], [3, 4, 5], [6, 7, 8], [9])]
    assert all(len(lane.segments) == len(lane.tensors) for _, lane in plan.lanes())


def test_aggregators_are_the_partitions() -> None:
    plan = make_plan("hipress", A, COSTS, {**TOPK, "sparse_op": "a2a_ag"})
    assert [(c, at) for c, at in lanes(plan) if c != "all_reduce"] == [
        ("a2a_ag(aggregators=3)", [1]),
        ("a2a_ag(aggregators=2)", [3]),
        ("a2a_ag(aggregators=4)", [5]),
        ("a2a_ag(aggregators=2)", [7]),
    ]


def test_what_the_rule_compares_is_what_the_lane_is_charged() -> None:
    """Gather, broadcast, one encode and one decode of SeCoPa's formula are the phases of a2a_ag."""
    q, k = 163_840, 3
    steps, part = fitted(COSTS), np.array([q / k])
    rule_s = steps.gather(part) + steps.broadcast(part) + COSTS.encode(2_048_000 / k) + COSTS.decode(2_048_000 / k)
    assert exchange_s(f"a2a_ag(aggregators={k})", Load(2_048_000, q, q // 8, 8), COSTS) == pytest.approx(rule_s[0])


def test_thresholds_of_the_example_scripts() -> None:
    sizes = [262_144, 262_145, 16_777_216, 16_777_217]
    profile = make_profile(sizes, [0.1] * 4)
    plan = make_plan("hipress", profile, COSTS, {**TOPK, "rule": "threshold", "sparse_op": "a2a_ag"})
    assert [c for c, _ in lanes(plan)] == [
        "all_reduce",
        "a2a_ag(aggregators=1)",
        "a2a_ag(aggregators=1)",
        "a2a_ag(aggregators=8)",
    ]


def test_authors_constants_in_a_plan() -> None:
    profile = make_profile([2_000_000, 3_000_000], [1e-3] * 2)
    options = {**TOPK, "constants": "authors", "density": 1 / 32}
    plan = make_plan("hipress", profile, affine_costs(16), options)
    assert sorted(lanes(plan)) == [("all_gather", [1]), ("all_reduce", [0])]
    with pytest.raises(ConfigError, match="holds for 4, 8, 16 workers only, not for 5; choose constants=fitted"):
        make_plan("hipress", profile, affine_costs(5), options)


@pytest.mark.parametrize("compressor", ["fp16", "qsgd", "powersgd", "randomk"])
def test_any_compressor_will_do(compressor: str) -> None:
    plan = make_plan("hipress", A, COSTS, {"compressor": compressor, "rule": "threshold"})
    assert sum(not segment.dense for _, lane in plan.lanes() for segment in lane.segments) == 4


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"bulk_bytes": 0}, "bulk_bytes must be at least 1, got 0"),
        ({"sparse_bulk_bytes": 0}, "sparse_bulk_bytes must be at least 1"),
        ({"bulk_timeout_s": -1}, "bulk_timeout_s must not be negative"),
        ({"rule": "threshold", "topology": "RING"}, "topology=RING has no effect here; drop it or set rule=paper"),
        ({"rule": "threshold", "constants": "authors"}, "constants=authors has no effect here"),
        ({"compress_min_elems": 5}, "compress_min_elems=5 has no effect here; drop it or set rule=threshold"),
        ({"rule": "threshold", "partition_min_elems": 5}, "drop it or set sparse_op=a2a_ag"),
        ({"sparse_op": "a2a_ag", "sizes": "variable"}, "sizes=variable has no effect here"),
        ({"sparse_op": "a2a_ag", "topology": "RING"}, "topology=RING has no aggregators"),
        ({"topology": "STAR"}, "must be PS or RING"),
        ({"sparse_op": "a2a_ag", "rule": "threshold", "compressor": "fp16"}, "use compressor=topk"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        make_plan("hipress", A, COSTS, {**TOPK, **options})
    assert "\n" not in str(caught.value)
