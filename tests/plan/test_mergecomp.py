"""MergeComp: the worked worked example, the paper's objective and Algorithm 2, against trying everything."""

import random
from collections import Counter
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from plan.instances import affine_costs, instance_a, make_profile, random_costs, random_instance, random_table

from ssfx.core.errors import ConfigError
from ssfx.planning.costs import Costs
from ssfx.planning.plan import Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.make_plan import make_plan
from ssfx.schemes.search.contiguous_groups import JointModel
from ssfx.schemes.search.mergecomp_search import SearchResult, algorithm_2, exhaustive, search_last_cut, terms
from ssfx.schemes.transport import Transport
from ssfx.simulator.pricing.timeline import evaluate

A, COSTS = instance_a(), affine_costs()
TRANSPORT = Transport("topk", 0.01, "all_gather")
BY_CUT_MS = (15.821, 14.904, 14.903, 14.433, 14.433, 13.376, 13.375, 13.352, 13.453, 14.758, 14.858)


def printed(value: float, digits: int = 3) -> Any:
    return pytest.approx(value, abs=0.6 * 10**-digits)


def planned(profile: Profile = A, costs: Costs = COSTS, **options: Any) -> Plan:
    return make_plan("mergecomp", profile, costs, {"compressor": "topk", **options})


def total_s(plan: Plan, profile: Profile = A, costs: Costs = COSTS) -> float:
    return evaluate(plan, profile, costs).total_s


def positions(plan: Plan) -> list[list[int]]:
    return [[plan.order[name] for lane in bucket.lanes for name in lane.tensors] for bucket in plan.buckets]


def instances(seed: int, num: int, most: int = 10) -> list[tuple[Profile, Costs]]:
    """Random models and costs, half of them with tables that are not affine."""
    rng, found = random.Random(seed), []
    for i in range(num):
        profile = make_profile(*random_instance(rng, rng.randint(2, most)))
        costs = random_costs(rng, rng.choice([2, 4, 8, 32]))
        if i % 2:
            tables = [random_table(rng) for _ in range(3)]
            costs = Costs(costs.world_size, tables[0], tables[1], tables[2], costs.exchange, costs.origin)
        found.append((profile, costs))
    return found


def test_worked_example() -> None:
    plan = planned()
    assert positions(plan) == [list(range(8)), list(range(8, 12))]
    assert 1e3 * total_s(plan) == printed(13.3524, 4)
    assert plan.notes == (("predicted_ms", "13.3524"),)
    assert all(len(lane.segments) == 1 and lane.collective == "all_gather" for _, lane in plan.lanes())
    assert [1e3 * total_s(planned(cuts=str(cut))) for cut in range(1, 12)] == [printed(ms) for ms in BY_CUT_MS]


def test_worked_terms_of_the_objective() -> None:
    model = JointModel.of(A, COSTS, TRANSPORT)
    found = terms(model, [np.array([8])])
    values_s = [found.backward_s, found.compression_s[0], found.exchange_s[0], found.hidden_s[0], found.total_s[0]]
    assert [1e3 * s for s in values_s] == [printed(ms, 4) for ms in (9.05, 3.8284, 3.0830, 2.6091, 13.3524)]
    assert 1e3 * terms(model, []).total_s[0] == printed(15.4715, 4)


def test_worked_probes_of_the_binary_search() -> None:
    model, probes = JointModel.of(A, COSTS, TRANSPORT), []

    def end_s(cut: np.ndarray) -> np.ndarray:
        probes.append(int(cut[0]))
        return terms(model, [cut]).total_s

    cut, best_s = search_last_cut(end_s, np.array([1]), np.array([11]))
    assert list(dict.fromkeys(probes)) == [6, 7, 9, 10, 8]
    assert cut[0] == 8
    assert 1e3 * best_s[0] == printed(13.352)


def test_worked_run_with_four_groups_stops_at_two() -> None:
    model = JointModel.of(A, COSTS, TRANSPORT)
    bests = list(exhaustive(model, 4))
    assert [best.cuts for best in bests[:2]] == [(), (8,)]
    printed_cuts = [np.array([cut]) for cut in (6, 10)]  # one of four groupings that end at the same time
    assert bests[2].total_s == pytest.approx(terms(model, printed_cuts).total_s[0], rel=1e-12)
    assert [1e3 * best.total_s for best in bests[:3]] == [printed(ms, 4) for ms in (15.4715, 13.3524, 13.3726)]
    assert planned(max_groups=4).buckets == planned().buckets


def test_the_papers_objective_is_the_timeline() -> None:
    for profile, costs in instances(1, 300):
        num = len(profile.tensors)
        cuts = sorted(random.Random(num).sample(range(1, num), min(num - 1, 3)))
        model = JointModel.of(profile, costs, TRANSPORT)
        plan = planned(profile, costs, cuts=",".join(map(str, cuts)))
        expected_s = total_s(plan, profile, costs)
        assert terms(model, [np.array([cut]) for cut in cuts]).total_s[0] == pytest.approx(expected_s, rel=1e-9)


def test_two_groups_equal_trying_every_cut() -> None:
    for profile, costs in instances(2, 200):
        tried = [total_s(planned(profile, costs, cuts=cut), profile, costs) for cut in range(1, len(profile.tensors))]
        whole = total_s(make_plan("fused_all", profile, costs, {"compressor": "topk"}), profile, costs)
        assert total_s(planned(profile, costs), profile, costs) == pytest.approx(min(*tried, whole), rel=1e-9)


def test_more_groups_equal_trying_all_cuts() -> None:
    for profile, costs in instances(3, 120, most=7):
        model = JointModel.of(profile, costs, TRANSPORT)
        bests = list(exhaustive(model, model.num_pieces))
        assert len(bests) == model.num_pieces
        for groups, best in enumerate(bests, start=1):
            choices = [list(cuts) for cuts in combinations(range(1, model.num_pieces), groups - 1)]
            tried = terms(model, list(np.array(choices).T) if groups > 1 else []).total_s
            assert best.total_s == pytest.approx(tried.min(), rel=1e-9)
            mine = terms(model, [np.array([cut]) for cut in best.cuts]).total_s[0]
            assert best.total_s == pytest.approx(mine, rel=1e-9)


@pytest.mark.parametrize(
    ("ends", "taken"),
    [
        ([10.0, 11.0, 1.0], 1),  # one more group is worse: it is not taken, and a later one never tried
        ([10.0, 10.0, 1.0], 1),  # no better: fewer groups
        ([10.0, 9.9, 1.0], 2),  # it gains less than 2 percent: it is the last
        ([10.0, 9.0, 8.0], 3),  # it goes on to the last
        ([10.0], 1),
    ],
)
def test_where_algorithm_2_stops(ends: list[float], taken: int) -> None:
    asked = []

    def bests() -> Any:
        for groups, end in enumerate(ends, start=1):
            asked.append(groups)
            yield SearchResult(tuple(range(1, groups)), end)

    assert len(algorithm_2(bests(), 0.02).cuts) + 1 == taken
    assert max(asked) == min(len(ends), taken + (ends[taken - 1] == 10.0))


def counted(model: JointModel) -> tuple[JointModel, Counter[str]]:
    """Return the model with a counter of the groups whose compressor calls were looked up."""
    count: Counter[str] = Counter()

    def encode(sizes: np.ndarray) -> np.ndarray:
        count["groups"] += sizes.size
        return model.curves["encode"](sizes)

    return JointModel(model.count, model.ready_s, model.numel, {**model.curves, "encode": encode}), count


def test_the_work_is_linear() -> None:
    for num in (100, 1000, 4000):
        profile = make_profile(*random_instance(random.Random(num), num))
        model, count = counted(JointModel.of(profile, COSTS, TRANSPORT))
        list(exhaustive(model, 2))
        assert count["groups"] <= 2 * num


def test_one_worker_and_one_tensor_make_one_group() -> None:
    assert len(planned(costs=affine_costs(1)).buckets) == 1
    assert len(planned(make_profile([5], [1e-3])).buckets) == 1
    assert len(planned(make_profile([5, 9], [1e-3] * 2)).buckets) in (1, 2)


def test_additive_payloads_and_density_one_are_cut_by_their_all_reduce() -> None:
    for options in ({"compressor": "fp16"}, {"density": 1.0}):
        plan = planned(**options)
        assert {lane.collective for _, lane in plan.lanes()} == {"all_reduce"}
        cuts = [planned(**options, cuts=cut) for cut in range(1, 12)]
        assert total_s(plan) == pytest.approx(min(total_s(cut) for cut in cuts), rel=1e-9)
    assert all(segment.dense for _, lane in planned(density=1.0).lanes() for segment in lane.segments)


def test_given_cuts() -> None:
    assert positions(planned(cuts="6,10")) == [list(range(6)), list(range(6, 10)), [10, 11]]
    assert planned(cuts=8) == planned(cuts="8") == planned()
    mixed = make_profile(A.numel, A.ready_gap_s, ["float32", "bfloat16"] * 6)
    assert positions(planned(mixed, cuts="5")) == [[1, 3], [0, 2, 4], [6, 8, 10], [5, 7, 9, 11]]
    hollow = make_profile([0, 7, 0, 9, 0], [1e-3] * 5)
    assert positions(planned(hollow, cuts="2")) == positions(planned(hollow, cuts="3")) == [[0, 1], [2, 3, 4]]
    assert positions(planned(hollow, cuts="1")) == positions(planned(hollow, cuts="4")) == [[0, 1, 2, 3, 4]]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_groups": 1}, "max_groups must be at least 2, got 1"),
        ({"cuts": "8", "max_groups": 3}, "max_groups=3 has no effect here"),
        ({"cuts": "8,6"}, 'cuts must be ascending numbers of tensors, such as "8" or "6,10"; got \'8,6\''),
        ({"cuts": "0"}, "cuts must be ascending"),
        ({"cuts": "a"}, "cuts must be ascending"),
        ({"cuts": 12}, "cuts=12 cuts behind tensor 12 of 12; cuts go from 1 to 11"),
        ({"profile_iters": 1}, "profile_iters must be at least 2"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        planned(**options)
    assert "\n" not in str(caught.value)
