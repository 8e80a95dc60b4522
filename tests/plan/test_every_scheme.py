"""What holds for every registered scheme on any model: a valid, reproducible plan with a sensible predicted time."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plan.instances import affine_costs, cost_tables, instance_a, make_profile, profiles
from plan.options import keeps_all, usual

from ssfx.collectives import collectives
from ssfx.compressors import build, compressors
from ssfx.core.errors import ConfigError
from ssfx.planning.costs import Costs, Curve
from ssfx.planning.plan import Plan
from ssfx.planning.profile import Profile
from ssfx.schemes import schemes
from ssfx.schemes.make_plan import make_plan
from ssfx.schemes.transport import keeps_fraction
from ssfx.simulator.pricing.message_sizes import plan_bytes
from ssfx.simulator.pricing.timeline import evaluate

relaxed = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
every_scheme = pytest.mark.parametrize("scheme", schemes.names())


def scaled(curve: Curve, factor: float) -> Curve:
    return replace(curve, seconds=tuple(factor * s for s in curve.seconds))


@every_scheme
@relaxed
@given(profile=profiles(), costs=cost_tables(), density=st.sampled_from([0.001, 0.01, 0.3, 1.0]))
def test_plans_are_valid_and_a_pure_function_of_their_inputs(
    scheme: str, profile: Profile, costs: Costs, density: float
) -> None:
    plan = make_plan(scheme, profile, costs, usual(scheme, density))
    again = make_plan(
        scheme, Profile.from_json(profile.to_json()), Costs.from_json(costs.to_json()), usual(scheme, density)
    )
    assert plan.to_json() == again.to_json()
    assert Plan.from_json(plan.to_json()) == plan
    assert plan.scheme == scheme
    assert plan.tensors == profile.tensors
    assert plan.world_size == costs.world_size
    for bucket in plan.buckets:
        for lane in bucket.lanes:
            assert all(segment.dense or plan.numel(segment) for segment in lane.segments), "an empty compressor call"
    if (costs.world_size == 1 and scheme != "ddp_fp16") or (density == 1 and keeps_all(scheme) is not None):
        assert all(segment.dense for _, lane in plan.lanes() for segment in lane.segments)
        assert plan_bytes(plan) == profile.nbytes


@pytest.mark.parametrize("scheme", [one.name for one in schemes if not one.profiled])
@relaxed
@given(profile=profiles(), costs=cost_tables(), other=cost_tables())
def test_schemes_that_plan_at_once_know_of_costs_the_ranks_alone(
    scheme: str, profile: Profile, costs: Costs, other: Costs
) -> None:
    """So that a plan is made once for all rates of a network."""
    options = schemes[scheme].options(usual(scheme, 0.01))
    elsewhere = replace(other, world_size=costs.world_size)
    plan = schemes[scheme].planner(profile, costs, options)
    assert schemes[scheme].planner(profile, elsewhere, options) == plan
    assert schemes[scheme].plan(profile, costs, options) is schemes[scheme].plan(profile, elsewhere, options)


@every_scheme
@relaxed
@given(profile=profiles(), costs=cost_tables())
def test_the_predicted_time_lies_between_its_bounds(scheme: str, profile: Profile, costs: Costs) -> None:
    plan = make_plan(scheme, profile, costs, usual(scheme))
    total_s = evaluate(plan, profile, costs).total_s
    exchange_s = sum(lane.end_s - lane.start_s for lane in evaluate(plan, profile, costs).lanes)
    packed = [s for bucket in plan.buckets for lane in bucket.lanes for s in lane.segments if not s.dense]
    codec_s = sum(
        (costs.host if s.placement == "host" else costs.encode)(plan.numel(s)) + costs.decode(plan.numel(s))
        for s in packed
    )
    assert total_s >= max(profile.backward_s, exchange_s) * (1 - 1e-12)
    assert total_s <= (profile.backward_s + codec_s + exchange_s) * (1 + 1e-12) + 1e-15


@every_scheme
@relaxed
@given(profile=profiles(), factor=st.floats(1, 10))
def test_a_given_plan_never_gets_faster_when_something_gets_slower(
    scheme: str, profile: Profile, factor: float
) -> None:
    base = affine_costs()
    plan = make_plan(scheme, profile, base, usual(scheme))
    before_s = evaluate(plan, profile, base).total_s
    slower = [
        affine_costs(alpha_s=2e-5 * factor),
        affine_costs(beta=8e-10 * factor),
        replace(base, encode=scaled(base.encode, factor)),
        replace(base, host=scaled(base.host, factor)),
        replace(base, decode=scaled(base.decode, factor)),
    ]
    for costs in slower:
        assert evaluate(plan, profile, costs).total_s >= before_s * (1 - 1e-12)


@every_scheme
@pytest.mark.parametrize("numel", [[7], [0], [0, 0, 0], [0, 5, 0, 0, 9, 0]])
def test_tiny_and_empty_models_have_a_plan(scheme: str, numel: list[int]) -> None:
    profile = make_profile(numel, [1e-3] * len(numel))
    plan = make_plan(scheme, profile, affine_costs(), usual(scheme))
    assert (plan_bytes(plan) > 0) == (sum(numel) > 0)


@every_scheme
def test_dtypes_are_planned_apart_and_launched_by_readiness(scheme: str) -> None:
    a = instance_a()
    profile = make_profile(a.numel, a.ready_gap_s, ["float32", "bfloat16"] * 6)
    plan = make_plan(scheme, profile, affine_costs(), usual(scheme))
    last = [max(plan.order[name] for lane in bucket.lanes for name in lane.tensors) for bucket in plan.buckets]
    assert last == sorted(last)
    launched: list[float] = [bucket for bucket, _ in plan.launch_order]
    if plan.decode == "comm_stream":  # launched by predicted readiness, whatever the bucket
        launched = [lane.ready_s for lane in evaluate(plan, profile, affine_costs()).lanes]
    assert launched == sorted(launched)


@every_scheme
@relaxed
@given(profile=profiles(), costs=cost_tables(), data=st.data())
def test_plans_use_only_declared_collectives_and_places(
    scheme: str, profile: Profile, costs: Costs, data: st.DataObject
) -> None:
    choices: list[dict[str, Any]] = [{}]
    choices += [usual(scheme, 0.3), usual(scheme, 1.0)]
    if schemes[scheme].compressors in ("any", "additive"):
        choices.append({"compressor": "fp16"})
    plan = make_plan(scheme, profile, costs, data.draw(st.sampled_from(choices)))
    assert {collectives.build(lane.collective).name for _, lane in plan.lanes()} <= set(schemes[scheme].collectives)
    placements = {segment.placement for _, lane in plan.lanes() for segment in lane.segments}
    assert "host" not in placements or schemes[scheme].offload


def accepted(scheme: str) -> set[str]:
    """Return the compressors with which the scheme makes a plan of a small model for four workers."""
    profile, found = make_profile([4000, 20, 60_000, 300], [1e-3] * 4), set()
    for compressor in compressors.names():
        try:
            make_plan(scheme, profile, affine_costs(4), {"compressor": compressor})
        except ConfigError:
            continue
        found.add(compressor)
    return found


@every_scheme
def test_a_scheme_takes_the_compressors_that_it_declares(scheme: str) -> None:
    families = {
        "any": set(compressors.names()),
        "additive": {name for name in compressors.names() if build(name).additive and not keeps_fraction(name)},
        "selecting": {name for name in compressors.names() if keeps_fraction(name) and not build(name).additive},
    }
    declared = schemes[scheme].compressors
    assert accepted(scheme) == families.get(declared, set(declared.split(", ")))


@every_scheme
def test_every_declared_collective_is_one(scheme: str) -> None:
    assert schemes[scheme].collectives
    assert set(schemes[scheme].collectives) <= set(collectives.names())


@pytest.mark.parametrize("compressor", ["fp16", "bf16"])
def test_a_density_that_was_asked_for_must_have_an_effect(compressor: str) -> None:
    with pytest.raises(
        ConfigError, match=f"compressor={compressor} sends as much at every density, so density=0.05 would have"
    ):
        make_plan("per_tensor", instance_a(), affine_costs(), {"compressor": compressor, "density": 0.05})
    plan = make_plan("per_tensor", instance_a(), affine_costs(), {"compressor": compressor})
    assert {segment.density for _, lane in plan.lanes() for segment in lane.segments} == {1.0}
