"""SSFusion's rules on random instances: the worked tests S1 to S7 and S10."""

import math
import random
from collections.abc import Iterator
from itertools import pairwise
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan.instances import affine_costs, gather, make_profile, plan_of, random_costs, random_instance
from plan.options import paper_plan as make_plan

from ssfx.planning.costs import Costs
from ssfx.planning.plan import Plan, Segment
from ssfx.planning.profile import Profile
from ssfx.schemes.search.ssfusion_buffers import BufferPlanner, BufferRules
from ssfx.schemes.search.ssfusion_selection import best_split, choose_host, compensated_density, select_eq2, split_times
from ssfx.schemes.transport import Transport
from ssfx.simulator.pricing.message_sizes import segment_bytes
from ssfx.simulator.pricing.timeline import evaluate

TOPK = {"compressor": "topk"}


def equal(profile: Profile, costs: Costs, groups: int = 3, density: float = 0.01) -> Plan:
    """The naive variant in buffers of equally many tensors."""
    num = len(profile.tensors)
    size = max(1, num // groups)
    ranges = [range(start, min(start + size, num)) for start in range(0, num, size)]
    buckets = BufferPlanner(profile, costs, Transport("topk", density, "all_gather")).buckets(BufferRules(), ranges)
    return plan_of("ssfusion_naive", profile, costs.world_size, buckets)


def instances(seed: int, count: int, low: int = 2, high: int = 30) -> Iterator[tuple[Profile, Costs]]:
    rng = random.Random(seed)
    for _ in range(count):
        profile = make_profile(*random_instance(rng, rng.randint(low, high)))
        yield profile, random_costs(rng, rng.choice([2, 4, 8, 32]))


def parts(plan: Plan) -> Iterator[tuple[list[Segment], list[Segment]]]:
    """Dense and compressed segments of each bucket."""
    for bucket in plan.buckets:
        segments = [segment for lane in bucket.lanes for segment in lane.segments]
        yield [s for s in segments if s.dense], [s for s in segments if not s.dense]


def test_s1_s2_s3_nothing_missing_volume_kept_something_compressed() -> None:
    for profile, costs in instances(1, 60):
        plan = equal(profile, costs)
        for dense, packed in parts(plan):
            total = sum(plan.numel(s) for s in (*dense, *packed))
            dense_numel = sum(plan.numel(s) for s in dense)
            kept = [segment_bytes(plan, s) // 8 for s in packed]
            assert packed
            assert min(kept) >= 1
            assert dense_numel < 0.01 * total
            if packed[0].density > 0.001:
                assert dense_numel + sum(kept) <= 0.01 * total + len(packed)
            assert packed[0].density <= 0.01


def test_s4_selection_stops_as_soon_as_eq2_holds() -> None:
    rng = random.Random(4)
    for _ in range(200):
        numel, gaps = random_instance(rng, rng.randint(1, 12))
        encode = [3e-4 + 4e-10 * n for n in numel]
        previous_s = rng.uniform(0, sum(gaps) + sum(encode))
        dense = select_eq2(numel, gaps, encode, previous_s, math.inf)
        compute_s = sum(gaps) + sum(e for i, e in enumerate(encode) if i not in dense)
        if len(dense) == len(numel):
            continue
        assert compute_s <= previous_s + 1e-12
        if dense:
            last = max(dense, key=lambda i: (numel[i], i))
            assert compute_s + encode[last] > previous_s - 1e-12
            assert max(numel[i] for i in dense) <= min(n for i, n in enumerate(numel) if i not in dense)


def test_s5_a_slower_network_never_leaves_more_tensors_dense() -> None:
    rng = random.Random(5)
    for _ in range(60):
        profile = make_profile(*random_instance(rng, 18))
        beta = 10 ** rng.uniform(-11, -8)
        fast, slow = (equal(profile, affine_costs(beta=b)) for b in (beta, beta * rng.uniform(1, 5)))
        for (before, _), (after, _) in list(zip(parts(fast), parts(slow), strict=True))[1:]:
            assert {s.tensors for s in after} <= {s.tensors for s in before}


def test_s6_host_work_is_back_in_time_and_never_queues() -> None:
    rng = random.Random(6)
    used = 0
    for _ in range(200):
        numel, gaps = random_instance(rng, rng.randint(1, 15))
        encode = [3e-4 + 4e-10 * n for n in numel]
        host = [2e-4 + 1e-9 * n for n in numel]
        dense = frozenset(i for i in range(len(numel)) if rng.random() < 0.3)
        chosen = choose_host(gaps, encode, host, dense)
        used += len(chosen)
        assert not chosen & dense
        assert len(numel) - 1 not in chosen
        device_s, spans = 0.0, []
        for i, gap in enumerate(gaps):
            device_s += gap
            if i in chosen:
                spans.append((device_s, device_s + host[i]))
            elif i not in dense:
                device_s += encode[i]
        assert all(end <= sum(gaps) for _, end in spans)
        assert all(a[1] <= b[0] for a, b in pairwise(spans))
    assert used > 100


def test_s6_offloading_never_lengthens_the_predicted_step() -> None:
    gains = 0
    for profile, costs in instances(66, 150):
        naive, offloaded = (make_plan(f"ssfusion_{v}", profile, costs, TOPK) for v in ("naive", "o"))
        before_s, after_s = (evaluate(plan, profile, costs).total_s for plan in (naive, offloaded))
        assert after_s <= before_s * (1 + 1e-12)
        gains += after_s < before_s
    assert gains > 10


def test_s7_separation_is_a_partition_and_its_split_the_best() -> None:
    for profile, costs in instances(7, 60):
        naive = make_plan("ssfusion_naive", profile, costs, TOPK)
        separated = make_plan("ssfusion_i", profile, costs, TOPK)
        assert [sorted(n for lane in b.lanes for n in lane.tensors) for b in naive.buckets] == [
            sorted(n for lane in b.lanes for n in lane.tensors) for b in separated.buckets
        ]
        for bucket in separated.buckets:
            assert [lane.collective for lane in bucket.lanes] in (["all_gather"], ["all_reduce", "all_gather"])
            assert all(segment.dense for lane in bucket.lanes[:-1] for segment in lane.segments)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=12))
@settings(deadline=None)
def test_s7_split_times_are_the_definition(rows: list[tuple[float, float, float]]) -> None:
    work, reduce_s, gather_s = (list(column) for column in zip(*rows, strict=True))
    reduce_s, gather_s = [0.0, *reduce_s], [*gather_s, 0.5]
    times = split_times(work, reduce_s, gather_s)
    for split, found in enumerate(times):
        expected = sum(work[:split]) + max(reduce_s[split], sum(work[split:])) + gather_s[split]
        assert found == pytest.approx(expected, abs=1e-12)
    assert times[best_split(times)] <= min(times) + 1e-12


@given(st.integers(1, 10**7), st.floats(0, 1), st.sampled_from([0.0005, 0.001, 0.01, 0.5]))
@settings(deadline=None)
def test_compensation_keeps_the_volume_unless_the_floor_binds(total: int, share: float, density: float) -> None:
    dense_numel = int(share * total)
    found = compensated_density(total, dense_numel, density)
    assert found <= density
    if 0 < dense_numel < total and found not in (0.001, density):
        assert dense_numel + found * (total - dense_numel) == pytest.approx(density * total)


def test_s10_the_rule_is_close_to_the_best_admissible_dense_set() -> None:
    rng = random.Random(10)
    gaps = []
    for _ in range(40):
        profile = make_profile(*random_instance(rng, 6))
        costs = random_costs(rng, rng.choice([4, 8, 32]))
        rule_s = evaluate(equal(profile, costs, 2, 0.05), profile, costs).total_s
        best_s = min(evaluate(plan, profile, costs).total_s for plan in admissible(profile, 0.05))
        assert rule_s >= best_s * (1 - 1e-12)
        gaps.append(rule_s / best_s - 1)
    assert mean(gaps) < 0.01
    assert sum(gap < 1e-9 for gap in gaps) > 20


def admissible(profile: Profile, density: float) -> Iterator[Plan]:
    """Every plan of two equal buffers whose dense sets satisfy the volume guard."""
    half = len(profile.tensors) // 2
    for mask in range(1 << len(profile.tensors)):
        buckets = []
        for at in (range(0, half), range(half, 2 * half)):
            dense = [i for i in at if mask >> i & 1]
            total, dense_numel = (sum(profile.numel[i] for i in members) for members in (at, dense))
            if dense and dense_numel >= density * total:
                break
            rho = compensated_density(total, dense_numel, density)
            buckets.append(
                gather(*(Segment((f"t{i}",)) if i in dense else Segment((f"t{i}",), "topk", rho) for i in at))
            )
        else:
            yield plan_of("any", profile, 8, buckets)


def test_the_payloads_are_the_compressors_own() -> None:
    assert Transport("topk", 0.01, "all_gather").nbytes(10_000) == 800
    assert Transport("topk(value_dtype=float16)", 0.01, "all_gather").nbytes(10_000) == 600
    assert Transport("topk", 0.01, "all_gather").nbytes(0) == 0
    assert Transport(None, 1.0, "all_reduce").nbytes(100, dtype="bfloat16") == 200
