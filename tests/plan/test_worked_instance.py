"""The worked instance A: every printed number of the dense, per-tensor, fused and SSFusion schemes.

Times are in milliseconds. The specification printed some of them from values already rounded to four digits, hence the
tolerance of 0.6 in the last place.
"""

from typing import Any

import pytest
from plan.instances import affine_costs, gather, instance_a, make_profile, model_sizes, names, plan_of
from plan.options import paper_plan as make_plan

from ssfx.planning.costs import Costs
from ssfx.planning.plan import Bucket, Plan, Segment
from ssfx.schemes.search.exact_groups import joint_groups
from ssfx.schemes.search.ssfusion_buffers import Buffer, BufferPlanner, BufferRules
from ssfx.schemes.transport import Transport
from ssfx.simulator.pricing.message_sizes import lane_bytes, plan_bytes
from ssfx.simulator.pricing.timeline import evaluate

A = instance_a()
COSTS = affine_costs()
P64 = affine_costs(64, alpha_s=2e-6)
TOPK = {"compressor": "topk"}
TRANSPORT = Transport("topk", 0.01, "all_gather")
CUPCAKE = [range(0, 8), range(8, 12)]


def printed(value: float, digits: int = 3) -> Any:
    return pytest.approx(value, abs=0.6 * 10**-digits)


def total_ms(plan: Plan, costs: Costs = COSTS) -> float:
    return 1e3 * evaluate(plan, A, costs).total_s


def positions(plan: Plan) -> list[list[int]]:
    return [sorted(plan.order[n] for lane in bucket.lanes for n in lane.tensors) for bucket in plan.buckets]


def dense_sets(plan: Plan) -> list[set[int]]:
    return [
        {plan.order[n] for lane in bucket.lanes for s in lane.segments if s.dense for n in s.tensors}
        for bucket in plan.buckets
    ]


def densities(plan: Plan) -> list[float]:
    return [next(s.density for s in bucket.lanes[-1].segments if not s.dense) for bucket in plan.buckets]


def given_groups(groups: list[range], costs: Costs) -> Plan:
    def bucket(group: range) -> Bucket:
        return gather(*(Segment((f"t{i}",), "topk", 0.01) for i in group))

    return plan_of("given", A, costs.world_size, [bucket(group) for group in groups])


@pytest.mark.parametrize(
    ("scheme", "options", "expected_ms"),
    [
        ("ssgd", {}, 44.369),
        ("ssgd", {"variant": "per_tensor"}, 47.449),
        ("wfbp", {}, 39.163),
        ("ddp", {}, 36.649),
        ("per_tensor", {**TOPK, "grouping": "none"}, 16.523),
        ("per_tensor", {**TOPK, "grouping": "cap"}, 18.403),
        ("per_tensor", {**TOPK, "grouping": "scaled_cap"}, 18.403),
        ("fused_all", TOPK, 15.471),
        ("ssfusion_naive", TOPK, 14.514),
        ("ssfusion_o", TOPK, 13.215),
        ("ssfusion_i", TOPK, 14.505),
        ("ssfusion_oi", TOPK, 13.386),
    ],
)
def test_predicted_time(scheme: str, options: dict[str, Any], expected_ms: float) -> None:
    assert total_ms(make_plan(scheme, A, COSTS, options)) == printed(expected_ms)


def test_dense_times_are_the_closed_forms() -> None:
    nbytes, ring = 4 * sum(A.numel), 2 * 7 * 0.02
    assert total_ms(make_plan("ssgd", A, COSTS)) == pytest.approx(9.05 + ring + 1.4e-6 * nbytes, abs=1e-9)
    per_tensor = make_plan("ssgd", A, COSTS, {"variant": "per_tensor"})
    assert total_ms(per_tensor) == pytest.approx(9.05 + 12 * ring + 1.4e-6 * nbytes, abs=1e-9)


def test_ddp_buckets_and_times() -> None:
    plan = make_plan("ddp", A, COSTS)
    assert positions(plan) == [[0, 1], list(range(2, 12))]
    assert [lane_bytes(plan, lane) for _, lane in plan.lanes()] == [8_196_000, 16_831_488]
    assert all(len(lane.segments) == 1 for _, lane in plan.lanes())
    first, second = evaluate(plan, A, COSTS).lanes
    assert [1e3 * t for t in (first.start_s, first.end_s, second.end_s)] == [
        printed(t, 2) for t in (1.05, 12.80, 36.65)
    ]
    assert 1e3 * second.start_s == printed(12.80, 2)


def test_without_latency_ddp_does_not_beat_wfbp() -> None:
    costs = affine_costs(alpha_s=0.0)
    assert total_ms(make_plan("wfbp", A, costs), costs) == printed(36.083)
    assert total_ms(make_plan("ddp", A, costs), costs) == printed(36.088)


def test_per_tensor_payloads_and_backward() -> None:
    plan = make_plan("per_tensor", A, COSTS, TOPK)
    assert positions(plan) == [[0, 1], list(range(2, 12))]
    assert [lane_bytes(plan, lane) for _, lane in plan.lanes()] == [163_920, 336_600]
    assert 1e3 * evaluate(plan, A, COSTS).backward_end_s == printed(15.15, 2)
    kept = [10, 20480, 20, 10485, 5, 23592, 5, 5242, 10, 2621, 1, 94]
    assert plan_bytes(plan) == 8 * sum(kept)


def test_per_tensor_with_given_groups() -> None:
    assert total_ms(given_groups(CUPCAKE, COSTS)) == printed(16.641)
    assert total_ms(given_groups([range(0, 2), range(2, 4), range(4, 12)], P64), P64) == printed(29.30, 2)


def test_best_fusion_groups_and_its_time() -> None:
    assert joint_groups(A, COSTS, TRANSPORT) == CUPCAKE
    joint = [gather(Segment(names(group), "topk", 0.01)) for group in CUPCAKE]
    assert total_ms(plan_of("joint", A, 8, joint)) == printed(13.3524, 4)
    assert total_ms(make_plan("fused_all", A, COSTS, TOPK)) == printed(15.4715, 4)
    assert joint_groups(A, P64, TRANSPORT) == [range(0, 2), range(2, 4), range(4, 12)]


def test_selection_and_density() -> None:
    plan = make_plan("ssfusion_naive", A, COSTS, TOPK)
    assert positions(plan) == [list(group) for group in CUPCAKE]
    assert dense_sets(plan) == [{0, 2, 4, 6}, {8, 10}]
    assert densities(plan) == [printed(0.009326, 6), printed(0.006033, 6)]
    assert [lane_bytes(plan, lane) for _, lane in plan.lanes()] == [462_432, 17_448]


def test_elements_sent_meet_the_budget() -> None:
    plan = make_plan("ssfusion_naive", A, COSTS, TOPK)
    sent = [
        sum(
            plan.numel(s) if s.dense else Transport("topk", s.density, "").nbytes(plan.numel(s)) // 8
            for s in lane.segments
        )
        for _, lane in plan.lanes()
    ]
    assert sent == [59_840, 2_725]


def test_without_compensation_the_first_gather_grows() -> None:
    plan = make_plan("ssfusion_naive", A, COSTS, {**TOPK, "compensate": False})
    assert lane_bytes(plan, plan.lane((0, 0))) == 494_680


def test_offloaded_tensors() -> None:
    plan = make_plan("ssfusion_o", A, COSTS, TOPK)
    host = {n for _, lane in plan.lanes() for s in lane.segments if s.placement == "host" for n in s.tensors}
    assert host == {"t1", "t9"}


def test_separation_table() -> None:
    planner = BufferPlanner(A, COSTS, TRANSPORT)
    first = Buffer(range(0, 8), frozenset({0, 2, 4, 6}), (59_842.32 - 4072) / (5_984_232 - 4072))
    second = Buffer(range(8, 12), frozenset({0, 2}), (2726.4 - 1088) / (272_640 - 1088))
    times_ms = [1e3 * t for t in planner.split_times(first)]
    expected = [13.172, 13.149, 13.149, 13.103, 13.103, 13.092, 13.092, 13.080, 13.383]
    assert times_ms == [printed(t) for t in expected]
    assert 1e3 * planner.split_times(second)[3] == printed(3.122)
    offloaded = [Buffer(b.at, b.dense, b.density, frozenset({1})) for b in (first, second)]
    assert 1e3 * planner.split_times(offloaded[0])[7] == printed(11.961)
    assert 1e3 * planner.split_times(offloaded[1])[3] == printed(2.717)


def test_separation_in_the_plan() -> None:
    plan = make_plan("ssfusion_oi", A, COSTS, TOPK)
    lanes = [(lane.collective, [plan.order[n] for n in lane.tensors]) for _, lane in plan.lanes()]
    assert lanes == [
        ("all_reduce", [0, 2, 4, 6]),
        ("all_gather", [1, 3, 5, 7]),
        ("all_reduce", [8, 10]),
        ("all_gather", [9, 11]),
    ]
    assert plan.launch_order == ((0, 0), (0, 1), (1, 0), (1, 1))
    assert lane_bytes(plan, plan.lane((0, 0))) == 16_288
    assert lane_bytes(plan, plan.lane((0, 1))) == 446_144
    assert plan.notes[0] == ("predicted_ms", "13.3859")
    assert plan.notes[1][1] == "4 dense (4 all-reduced), 4 compressed at density 0.009326 (1 on the host)"


def test_64_ranks_with_a_fast_start() -> None:
    naive = make_plan("ssfusion_naive", A, P64, TOPK)
    assert positions(naive) == [[0, 1], [2, 3], list(range(4, 12))]
    assert dense_sets(naive) == [{0}, set(), {4, 6, 8, 10, 11}]
    assert densities(naive) == [printed(0.009517, 6), 0.01, printed(0.006375, 6)]
    assert total_ms(naive, P64) == printed(26.17, 2)
    interleaved = make_plan("ssfusion_i", A, P64, TOPK)
    assert total_ms(interleaved, P64) == printed(23.98, 2)
    reduced = [lane.tensors for _, lane in interleaved.lanes() if lane.collective == "all_reduce"]
    assert reduced == [("t0",), names([4, 6, 8, 10, 11])]


def test_exhaustive_offloading_is_better_than_the_rule() -> None:
    plan = make_plan("ssfusion_o", A, COSTS, TOPK)
    packed = [s.tensors[0] for _, lane in plan.lanes() for s in lane.segments if not s.dense]

    def placed(mask: int) -> Plan:
        host = {name for bit, name in enumerate(packed) if mask >> bit & 1}
        buckets = [
            gather(
                *(
                    s
                    if s.dense
                    else Segment(s.tensors, s.compressor, s.density, "host" if s.tensors[0] in host else "device")
                    for s in bucket.lanes[0].segments
                )
            )
            for bucket in plan.buckets
        ]
        return plan_of("placed", A, 8, buckets)

    assert min(total_ms(placed(mask)) for mask in range(1 << len(packed))) == printed(12.20, 2)


@pytest.mark.parametrize(
    ("model", "density", "num_dense", "smallest"),
    [
        ("resnet152", 0.01, 308, 0.00109),
        ("vit_large", 0.01, 245, 0.00871),
        ("bert_large_qa", 0.01, 245, 0.00871),
        ("gpt2_large_lm", 0.01, 290, 0.00894),
        ("resnet152", 0.001, 178, 0.001),
        ("vit_large", 0.001, 231, 0.001),
        ("bert_large_qa", 0.001, 232, 0.001),
        ("gpt2_large_lm", 0.001, 285, 0.001),
    ],
)
def test_dense_tensors_of_real_models(model: str, density: float, num_dense: int, smallest: float) -> None:
    numel = model_sizes(model)
    profile = make_profile(numel, [1.0] * len(numel))  # so slow a backward that Eq. 2 never holds
    size = max(1, len(numel) // 20)
    ranges = [range(start, min(start + size, len(numel))) for start in range(0, len(numel), size)]
    planner = BufferPlanner(profile, COSTS, Transport("topk", density, "all_gather"))
    plan = plan_of("ssfusion_naive", profile, COSTS.world_size, planner.buckets(BufferRules(), ranges))
    assert sum(len(found) for found in dense_sets(plan)) == num_dense
    found = min(s.density for _, lane in plan.lanes() for s in lane.segments if not s.dense)
    assert found == pytest.approx(smallest, abs=1e-5)
