"""Cupcake and equal counts: the worked example, the worked dynamic program, and every grouping tried."""

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate, combinations, islice, pairwise
from typing import Any

import pytest
from plan.instances import (
    affine_costs,
    gather,
    instance_a,
    make_profile,
    names,
    plan_of,
    random_costs,
    random_instance,
    random_table,
)

from ssfx.core.errors import ConfigError
from ssfx.planning.costs import Costs, Curve
from ssfx.planning.plan import Bucket, Lane, Plan, Segment
from ssfx.planning.profile import Profile
from ssfx.schemes.make_plan import make_plan
from ssfx.schemes.search import exact_groups as fusion_search
from ssfx.schemes.search.contiguous_groups import group_curves
from ssfx.schemes.search.exact_groups import Fusion, best_by_count
from ssfx.schemes.transport import Transport
from ssfx.simulator.pricing.timeline import evaluate

A, COSTS = instance_a(), affine_costs()
TRANSPORT = Transport("topk", 0.01, "all_gather")
F_MS = (15.4715, 13.3524, 13.3726, 13.7226, 14.0726, 14.4226)


def printed(value: float, digits: int = 3) -> Any:
    return pytest.approx(value, abs=0.6 * 10**-digits)


def planned(profile: Profile = A, costs: Costs = COSTS, scheme: str = "cupcake", **options: Any) -> Plan:
    return make_plan(scheme, profile, costs, {"compressor": "topk", **options})


def total_s(plan: Plan, profile: Profile = A, costs: Costs = COSTS) -> float:
    return evaluate(plan, profile, costs).total_s


def counts(plan: Plan) -> list[int]:
    return [len(bucket.lanes[0].tensors) for bucket in plan.buckets]


def by_count(profile: Profile, costs: Costs, transport: Transport = TRANSPORT) -> list[Fusion]:
    return list(best_by_count(profile.ready_gap_s, profile.numel, **group_curves(profile, costs, transport)))


def instances(seed: int, num: int, most: int) -> list[tuple[Profile, Costs]]:
    """Random models and costs: affine, tables of any shape, and without overheads, where many groups are best."""
    rng, found = random.Random(seed), []
    for i in range(num):
        profile = make_profile(*random_instance(rng, rng.randint(1, most)))
        costs = random_costs(rng, rng.choice([2, 4, 8, 32]))
        if i % 3 == 0:
            costs = replace(costs, encode=Curve.affine(1e-6, 1e-10), decode=Curve.zero())
        if i % 3 == 1:
            tables = [random_table(rng) for _ in range(3)]
            costs = Costs(costs.world_size, tables[0], tables[1], tables[2], costs.exchange, costs.origin)
        found.append((profile, costs))
    return found


def ends_of_all_groupings(profile: Profile, costs: Costs, bucket: Callable[[range], Bucket]) -> list[list[float]]:
    """The ends of all groupings in the reference timeline, by number of groups."""
    num, ends = len(profile.tensors), []
    for groups in range(1, num + 1):
        ends.append([])
        for cuts in combinations(range(1, num), groups - 1):
            buckets = [bucket(range(a, b)) for a, b in pairwise((0, *cuts, num))]
            ends[-1].append(total_s(plan_of("tried", profile, costs.world_size, buckets), profile, costs))
    return ends


def joint(group: range) -> Bucket:
    return gather(Segment(names(group), "topk", 0.01))


def test_worked_example() -> None:
    plan = planned()
    assert counts(plan) == [8, 4]
    assert 1e3 * total_s(plan) == printed(13.3524, 4)
    assert plan.notes == (("predicted_ms", "13.3524"),)
    assert [(lane.collective, len(lane.segments)) for _, lane in plan.lanes()] == [("all_gather", 1)] * 2


def test_worked_ends_by_number_of_groups() -> None:
    fusions = by_count(A, COSTS)
    assert [1e3 * fusion.total_s for fusion in fusions[:6]] == [printed(ms, 4) for ms in F_MS]
    assert fusions[1].stops == (8, 12)
    assert [len(fusion.stops) for fusion in fusions] == list(range(1, 13))


def test_worked_row_of_per_tensor_compression_in_the_same_groups() -> None:
    buckets = [gather(*(Segment((f"t{i}",), "topk", 0.01) for i in group)) for group in (range(8), range(8, 12))]
    assert 1e3 * total_s(plan_of("given", A, 8, buckets)) == printed(16.641)


def test_the_plan_is_the_best_of_all_groupings() -> None:
    for profile, costs in instances(1, 200, most=7):
        best_s = min(min(ends) for ends in ends_of_all_groupings(profile, costs, joint))
        assert total_s(planned(profile, costs), profile, costs) == pytest.approx(best_s, rel=1e-9)


def test_for_every_number_of_groups_the_best_of_all_groupings() -> None:
    for profile, costs in instances(2, 100, most=7):
        fusions = by_count(profile, costs)
        tried = ends_of_all_groupings(profile, costs, joint)
        assert [fusion.total_s for fusion in fusions] == pytest.approx([min(ends) for ends in tried], rel=1e-9)
        for fusion in fusions:
            plan = plan_of("mine", profile, costs.world_size, [joint(group) for group in fusion.groups])
            assert total_s(plan, profile, costs) == pytest.approx(fusion.total_s, rel=1e-9)


def dynamic_program(profile: Profile, costs: Costs) -> list[float]:
    """The worked V[k][j] for affine costs, written out: F_k for k = 1, 2, ..."""
    num = len(profile.tensors)
    base_e, base_d = costs.encode(1e-12), costs.decode(1e-12)
    ready = [0.0, *accumulate(profile.ready_gap_s)]
    size = [0, *accumulate(profile.numel)]
    slope_e, slope_d = ((curve(size[-1]) - curve(1e-12)) / size[-1] for curve in (costs.encode, costs.decode))
    before, ends = [0.0] + [float("inf")] * num, []
    for k in range(1, num + 1):
        now = [float("inf")] * (num + 1)
        for j in range(k, num + 1):
            compute = ready[j] + k * base_e + slope_e * size[j]
            now[j] = min(
                max(before[i], compute) + costs.exchange_s("all_gather", TRANSPORT.nbytes(size[j] - size[i]))
                for i in range(k - 1, j)
            )
        ends.append(now[num] + k * base_d + slope_d * size[num])
        before = now
    return ends


def test_the_dynamic_program_of_the_specification_agrees() -> None:
    rng = random.Random(3)
    for _ in range(100):
        profile = make_profile(*random_instance(rng, rng.randint(1, 25)))
        costs = random_costs(rng, rng.choice([2, 4, 8, 32]))
        ends = dynamic_program(profile, costs)
        assert [fusion.total_s for fusion in by_count(profile, costs)] == pytest.approx(ends, rel=1e-9)
        assert total_s(planned(profile, costs), profile, costs) == pytest.approx(min(ends), rel=1e-9)


@pytest.mark.parametrize(("options", "compressor"), [({"compressor": "fp16"}, "fp16"), ({"density": 1.0}, None)])
def test_dense_messages_are_fused_best_too(options: dict[str, Any], compressor: str | None) -> None:
    def reduced(group: range) -> Bucket:
        return Bucket((Lane("all_reduce", (Segment(names(group), compressor),)),))

    for profile, costs in instances(5, 60, most=6):
        plan = planned(profile, costs, **options)
        assert {(lane.collective, s.compressor) for _, lane in plan.lanes() for s in lane.segments} == {
            ("all_reduce", compressor)
        }
        best_s = min(min(ends) for ends in ends_of_all_groupings(profile, costs, reduced))
        assert total_s(plan, profile, costs) == pytest.approx(best_s, rel=1e-9)


def test_dense_messages_are_charged_their_own_dtype() -> None:
    wide, half = (make_profile(A.numel, A.ready_gap_s, [dtype] * 12) for dtype in ("float32", "bfloat16"))
    halved = affine_costs(beta=4e-10)
    assert counts(planned(half, COSTS, density=1.0)) == counts(planned(wide, halved, density=1.0))
    assert planned(half, COSTS, density=1.0).notes == planned(wide, halved, density=1.0).notes


def test_one_worker_one_tensor_and_tiny_tensors_make_one_group() -> None:
    assert counts(planned(costs=affine_costs(1))) == [12]
    assert counts(planned(make_profile([7], [1e-3]))) == [1]
    assert counts(planned(make_profile([3] * 30, [1e-6] * 30))) == [30]


def test_the_work_grows_with_the_square_of_the_tensors_and_no_further_than_the_candidates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fusion_search, "MAX_CUTS", 64)
    for num in (16, 32, 200, 2000):
        profile = make_profile(*random_instance(random.Random(num), num))
        curves, looked_up = group_curves(profile, COSTS, TRANSPORT), 0

        def encode(sizes: Any, encode: Any = curves["encode"]) -> Any:
            nonlocal looked_up
            looked_up += sizes.size
            return encode(sizes)

        list(islice(best_by_count(profile.ready_gap_s, profile.numel, **{**curves, "encode": encode}), 2))
        assert looked_up <= min(num, 64) * (min(num, 64) + 1) / 2


def test_groups_of_equal_counts() -> None:
    assert counts(planned(scheme="equal_count")) == [6, 6]
    assert counts(planned(scheme="equal_count", groups=5)) == [2, 2, 2, 2, 4]
    assert counts(planned(scheme="equal_count", groups=1)) == [12]
    assert counts(planned(scheme="equal_count", groups=50)) == [1] * 12
    hollow = make_profile([0, 7, 0, 9, 0], [1e-3] * 5)
    assert counts(planned(hollow, scheme="equal_count")) == [2, 3]
    assert counts(planned(make_profile([0, 0], [1e-3] * 2), scheme="equal_count")) == [2]


def test_groups_of_equal_counts_need_no_times() -> None:
    still = make_profile(A.numel, [0.0] * 12)
    assert planned(still, affine_costs(alpha_s=1.0), scheme="equal_count") == planned(scheme="equal_count")


@pytest.mark.parametrize(
    ("scheme", "options", "text"),
    [
        ("cupcake", {"profile_iters": 1}, "profile_iters must be at least 2"),
        ("cupcake", {"groups": 2}, "unknown option of scheme cupcake"),
        ("equal_count", {"groups": 0}, "groups must be at least 1, got 0; scheme=per_tensor"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(scheme: str, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        planned(scheme=scheme, **options)
    assert "\n" not in str(caught.value)
