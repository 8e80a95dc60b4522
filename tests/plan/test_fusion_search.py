"""The fusion search is exact: it equals trying every contiguous grouping."""

import random
from collections.abc import Callable

import numpy as np
import pytest
from plan.instances import (
    affine_costs,
    gather,
    instance_a,
    make_profile,
    model_sizes,
    names,
    plan_of,
    random_costs,
    random_instance,
    random_table,
)

from ssfx.planning.costs import Costs, Curve
from ssfx.planning.plan import Segment
from ssfx.planning.profile import Profile
from ssfx.schemes.search import exact_groups as fusion_search
from ssfx.schemes.search.exact_groups import Fusion, best_fusion, joint_groups
from ssfx.schemes.transport import Transport
from ssfx.simulator.pricing.timeline import evaluate

TRANSPORT = Transport("topk", 0.01, "all_gather")


def by_trying_all(profile: Profile, encode: Curve, decode: Curve, message: Callable[[int], float]) -> float:
    """End of the best of all 2^(L-1) groupings, in the reference timeline written out."""
    num, best = len(profile.tensors), float("inf")
    for mask in range(1 << (num - 1)):
        stops = [i + 1 for i in range(num - 1) if mask >> i & 1] + [num]
        compute_s = net_s = decode_s = 0.0
        start = 0
        for stop in stops:
            size = sum(profile.numel[start:stop])
            compute_s += sum(profile.ready_gap_s[start:stop]) + encode(size)
            net_s = max(net_s, compute_s) + message(size)
            decode_s += decode(size)
            start = stop
        best = min(best, max(compute_s, net_s) + decode_s)
    return best


@pytest.mark.parametrize("affine", [True, False])
def test_equals_trying_all_groupings(affine: bool) -> None:
    rng = random.Random(11)
    for _ in range(160):
        profile = make_profile(*random_instance(rng, rng.randint(1, 8)))
        costs = random_costs(rng, rng.choice([2, 4, 8, 32]))
        if not affine:
            costs = Costs(
                costs.world_size, random_table(rng), costs.host, random_table(rng), costs.exchange, costs.origin
            )

        def message(size: int, costs: Costs = costs) -> float:
            return costs.exchange_s("all_gather", TRANSPORT.nbytes(size))

        groups = joint_groups(profile, costs, TRANSPORT)
        buckets = [gather(Segment(names(group), "topk", 0.01)) for group in groups]
        predicted_s = evaluate(plan_of("joint", profile, costs.world_size, buckets), profile, costs).total_s
        assert predicted_s == pytest.approx(by_trying_all(profile, costs.encode, costs.decode, message), rel=1e-9)


def test_the_reported_end_is_that_of_the_timeline() -> None:
    fusion = best_of(instance_a(), affine_costs())
    assert fusion.stops == (8, 12)
    assert fusion.total_s == pytest.approx(13.3524264e-3, rel=1e-9)


def best_of(profile: Profile, costs: Costs) -> Fusion:
    return best_fusion(
        profile.ready_gap_s,
        profile.numel,
        encode=costs.encode.many,
        decode=costs.decode.many,
        message=lambda sizes: costs.exchange_many_s("all_gather", TRANSPORT.nbytes_many(sizes)),
    )


def test_the_finest_grouping_is_best_when_nothing_has_a_fixed_cost() -> None:
    rng = random.Random(5)
    for _ in range(50):
        numel, gaps = random_instance(rng, 9)
        gamma, beta = rng.uniform(0, 1e-9), rng.uniform(1e-12, 1e-9)
        curves = {"encode": Curve.affine(0, gamma), "decode": Curve.affine(0, 0), "message": Curve.affine(0, beta)}
        best = best_fusion(gaps, numel, **{key: curve.many for key, curve in curves.items()})
        finest = 0.0
        for n, ready in zip(numel, np.cumsum(gaps) + gamma * np.cumsum(numel), strict=True):
            finest = max(finest, ready) + beta * n
        assert best.total_s == pytest.approx(finest, rel=1e-9)


def test_nothing_to_gain_means_one_group() -> None:
    free = Curve.zero().many
    assert best_fusion([1e-3] * 20, [100] * 20, encode=free, decode=free, message=free).stops == (20,)


def test_dense_fusion_is_the_same_search() -> None:
    profile, costs = instance_a(), affine_costs()
    dense = Transport(None, 1.0, "all_reduce")
    free = Curve.zero().many

    def message(sizes: np.ndarray) -> np.ndarray:
        return costs.exchange_many_s("all_reduce", dense.nbytes_many(sizes))

    best = best_fusion(profile.ready_gap_s, profile.numel, encode=free, decode=free, message=message)
    expected = by_trying_all(profile, Curve.zero(), Curve.zero(), lambda size: costs.exchange_s("all_reduce", 4 * size))
    assert best.total_s == pytest.approx(expected, rel=1e-9)


def test_tensors_without_elements_stay_with_the_next() -> None:
    assert joint_groups(make_profile([0, 5, 0], [1e-3] * 3), affine_costs(), TRANSPORT) == [range(0, 3)]
    numel = [0, 10**6, 0, 0, 10**6, 0]
    costs = affine_costs(encode=(0, 0), decode=(0, 0), alpha_s=0)
    assert joint_groups(make_profile(numel, [1e-3] * 6), costs, TRANSPORT) == [range(0, 2), range(2, 6)]


def test_large_models_are_cut_at_fewer_places(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = make_profile(*random_instance(random.Random(3), 60))
    exact = best_of(profile, affine_costs())
    monkeypatch.setattr(fusion_search, "MAX_CUTS", 30)
    coarse = best_of(profile, affine_costs())
    assert exact.total_s <= coarse.total_s <= 1.05 * exact.total_s
    assert coarse.stops[-1] == 60


def test_many_different_sizes_are_interpolated_to_one_kept_element(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = np.unique(np.random.default_rng(0).integers(1, 10**7, 3000)).astype(float)
    one_by_one = Transport("block_topk(block=1)", 0.01, "all_gather")
    exact = [[transport.nbytes_many(sizes) for transport in (TRANSPORT, one_by_one)]]
    monkeypatch.setattr("ssfx.schemes.transport._EXACT_SIZES", 300)
    exact.append([transport.nbytes_many(sizes) for transport in (TRANSPORT, one_by_one)])
    for transport, before, after in zip((TRANSPORT, one_by_one), *exact, strict=True):
        assert list(before) == [transport.nbytes(int(size)) for size in sizes]
        assert np.abs(after - before).max() <= 8
    assert (exact[0][0] == exact[1][0]).all()
    assert (exact[0][1] != exact[1][1]).any()


@pytest.mark.parametrize("model", ["resnet152", "bert_large_qa"])
def test_real_models_with_measured_looking_tables(model: str) -> None:
    numel = model_sizes(model)
    rng = random.Random(2)
    knots = tuple(64 * 4.0**i for i in range(11))

    def table(base_s: float, per_element_s: float) -> Curve:
        return Curve(knots, tuple(sorted(base_s * (1 + rng.random()) + per_element_s * n for n in knots)))

    costs = affine_costs()
    costs = Costs(8, table(3e-4, 4e-10), costs.host, table(5e-5, 1e-10), costs.exchange, costs.origin)
    profile = make_profile(numel, [0.1 * n / sum(numel) for n in numel])
    best = best_of(profile, costs)
    assert best.stops[-1] == len(numel)
    for num in range(1, 40):
        size = -(-len(numel) // num)
        buckets = [
            gather(Segment(names(range(start, min(start + size, len(numel)))), "topk", 0.01))
            for start in range(0, len(numel), size)
        ]
        even = evaluate(plan_of("even", profile, 8, buckets), profile, costs)
        assert best.total_s <= even.total_s + 1e-12
