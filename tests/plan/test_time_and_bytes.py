"""Curves, cost tables, the reference timeline and bytes on the wire."""

import random
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from plan.instances import ORIGIN, affine_costs, gather, instance_a, make_profile, names, plan_of, random_table

from ssfx.collectives import Load, collectives
from ssfx.core.errors import ConfigError
from ssfx.planning.costs import Costs, Curve, ring_exchange
from ssfx.planning.plan import Bucket, Lane, Plan, Segment, TensorSpec, launch_in_order
from ssfx.planning.profile import Profile
from ssfx.simulator.pricing.message_sizes import lane_bytes, payload_layout, plan_bytes
from ssfx.simulator.pricing.timeline import evaluate


def test_a_curve_of_many_sizes_is_the_curve_of_each() -> None:
    rng = random.Random(0)
    for curve in [random_table(rng) for _ in range(20)] + [Curve.affine(1e-3, 2e-9), Curve((5.0,), (1.0,))]:
        sizes = np.array([0, 1, 5, *(rng.randint(0, 4_000_000) for _ in range(200)), *curve.sizes])
        assert list(curve.many(sizes)) == [curve(float(size)) for size in sizes]


def test_an_affine_curve_keeps_its_slope() -> None:
    curve = Curve.affine(1.0, 1e-12)
    assert curve(1e9) - curve(1.0) == pytest.approx(1e-3, rel=1e-6)
    assert curve(0) == 0
    assert curve.covers(1e15)


def test_a_measured_curve_says_where_it_was_measured() -> None:
    curve = Curve((64.0, 128.0), (1.0, 3.0))
    assert [curve(s) for s in (0, 1, 96, 256)] == [0, 1, 2, 7]
    assert [curve.covers(s) for s in (0, 1, 64, 128, 129)] == [True, False, True, True, False]


def test_ring_curves_are_the_collectives_own_traffic() -> None:
    alpha_s, beta = 1e-5, 8e-10
    for world_size in (2, 8, 64):
        for name, curve in ring_exchange(world_size, alpha_s, beta).items():
            if name not in ("all_reduce", "all_gather", "all_gather_v"):
                continue
            traffic = collectives.build(name).traffic(Load.dense(64_000, world_size))
            assert curve(64_000) == pytest.approx(traffic.messages * alpha_s + traffic.sent_bytes * beta)


def test_one_rank_exchanges_nothing() -> None:
    alone = affine_costs(1)
    assert alone.exchange_s("all_reduce", 1e6) == 0
    assert not alone.exchange_many_s("all_reduce", np.ones(3)).any()


def test_a_collective_without_a_curve_is_a_user_error() -> None:
    with pytest.raises(ConfigError, match="calibrated: all_gather"):
        affine_costs().exchange_s("carrier_pigeon", 1)


def test_profile_and_costs_survive_text() -> None:
    profile, costs = instance_a(), affine_costs()
    assert Profile.from_json(profile.to_json()) == profile
    assert Costs.from_json(costs.to_json()) == costs


@pytest.mark.parametrize(("gaps", "forward_s"), [([1.0], 0.0), ([1.0, -1.0], 0.0), ([1.0, 1.0], -1.0)])
def test_impossible_profiles_are_refused(gaps: list[float], forward_s: float) -> None:
    with pytest.raises(ValueError, match=r"ready gaps|negative"):
        replace(make_profile([1, 2], [1.0, 1.0]), ready_gap_s=tuple(gaps), forward_s=forward_s)


def two_groups() -> Plan:
    buckets = [gather(Segment(names(group), "topk", 0.01)) for group in (range(0, 8), range(8, 12))]
    return plan_of("test", instance_a(), 8, buckets)


def test_decoding_on_the_network_stream_occupies_the_network() -> None:
    profile, costs = instance_a(), affine_costs()
    at_end = evaluate(two_groups(), profile, costs)
    on_stream = evaluate(replace(two_groups(), decode="comm_stream"), profile, costs)
    first_decode_s = costs.decode(sum(profile.numel[:8]))
    assert on_stream.lanes[0].end_s == pytest.approx(at_end.lanes[0].end_s + first_decode_s)
    assert on_stream.total_s == max(on_stream.backward_end_s, on_stream.lanes[1].end_s)
    assert at_end.total_s == pytest.approx(max(at_end.backward_end_s, at_end.lanes[1].end_s) + at_end.decode_s)


def test_the_overlap_identity() -> None:
    """F = A + encode + decode + exchange - hidden exchange (D-42)."""
    profile, costs = instance_a(), affine_costs()
    plan = two_groups()
    line = evaluate(plan, profile, costs)
    encode_s = sum(costs.encode(plan.numel(s)) for _, lane in plan.lanes() for s in lane.segments)
    exchange_s = sum(lane.end_s - lane.start_s for lane in line.lanes)
    hidden_s = sum(max(0.0, min(lane.end_s, line.backward_end_s) - lane.start_s) for lane in line.lanes)
    assert [1e3 * s for s in (encode_s + line.decode_s, exchange_s, hidden_s)] == [
        pytest.approx(ms, abs=6e-5) for ms in (3.8284, 3.0830, 2.6091)
    ]
    assert line.total_s == pytest.approx(profile.backward_s + encode_s + line.decode_s + exchange_s - hidden_s)


def test_without_overlap_nothing_starts_before_backward_has_ended() -> None:
    line = evaluate(replace(two_groups(), overlap=False), instance_a(), affine_costs())
    assert line.lanes[0].start_s == line.backward_end_s


def test_the_profile_must_list_the_plans_tensors() -> None:
    with pytest.raises(ValueError, match="different tensors"):
        evaluate(two_groups(), make_profile([1], [1.0]), affine_costs())


def test_bytes_are_counted_per_lane_and_dtype() -> None:
    plan = two_groups()
    assert [lane_bytes(plan, lane) for _, lane in plan.lanes()] == [8 * 59_842, 8 * 2_726]
    assert plan_bytes(plan) == 8 * (59_842 + 2_726)
    item_bytes = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8}
    assert {dtype: payload_layout(None, 10, 1.0, dtype).nbytes for dtype in item_bytes} == {
        dtype: 10 * size for dtype, size in item_bytes.items()
    }
    assert payload_layout("topk", 0, 0.5).nbytes == 0


def test_planning_imports_no_torch() -> None:
    code = (
        "import sys; from ssfx.schemes.make_plan import make_plan; from ssfx.schemes import schemes; schemes.names();"
        "from ssfx.compressors import build; build('topk').layout(10, 0.5); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_compressor_of_two_rounds_pays_two_start_ups() -> None:
    tensors = (TensorSpec("t0", (512, 512)),)
    profile = Profile("test", tensors, (1e-3,), 0.0, ORIGIN)
    free, alpha_s, beta = Curve.zero(), 1e-4, 1e-9
    costs = Costs(4, free, free, free, ring_exchange(4, alpha_s, beta), ORIGIN)
    segment = Segment(("t0",), "powersgd(rank=4)")
    buckets = (Bucket((Lane("all_reduce", (segment,)),)),)
    plan = Plan("by_hand", 4, tensors, buckets, launch_in_order(buckets, tensors))
    (lane,) = evaluate(plan, profile, costs).lanes
    assert lane.end_s - lane.start_s == pytest.approx(2 * 6 * alpha_s + 2 * 0.75 * plan_bytes(plan) * beta)
