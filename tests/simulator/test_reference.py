"""Without contention the simulator is the reference timeline F(plan) of D-42."""

import random
from dataclasses import replace

import pytest
from plan.instances import affine_costs, instance_a, make_profile, random_costs, random_instance
from plan.options import usual
from simulator.systems import system_of

from ssfx.planning.costs import Curve
from ssfx.schemes.make_plan import make_plan
from ssfx.simulator import simulate
from ssfx.simulator.pricing.timeline import evaluate

# The others' decoding depends on more than elements times density, which is all that F's decode curve knows.
COMPARABLE = (
    "ssgd",
    "wfbp",
    "ddp",
    "hierarchical",
    "topk",
    "hard_threshold",
    "per_tensor",
    "fused_all",
    "equal_count",
    "omgs_fixed",
    "mergecomp",
    "omgs",
    "cupcake",
    "hipress",
    "espresso",
    "ssfusion_naive",
    "ssfusion_o",
    "ssfusion_i",
    "ssfusion_oi",
)


def decode_of(scheme):
    """F decodes every segment as if it had the plan's density; SSFusion moves density between segments."""
    return (5e-5, 0.0 if scheme.startswith("ssfusion") else 1e-10)


@pytest.mark.parametrize("scheme", COMPARABLE)
def test_equals_the_reference_timeline_on_instance_a(scheme):
    costs, profile = affine_costs(decode=decode_of(scheme)), instance_a()
    plan = make_plan(scheme, profile, costs, usual(scheme))
    found = simulate(plan, profile, system_of(costs, 0.01))
    expected = evaluate(plan, profile, costs)
    assert found.iteration_s == pytest.approx(expected.total_s, abs=2e-7)
    last_lane_s = max((task.end_s for task in found.tasks if task.stage == "exchange"), default=0.0)
    if plan.decode == "end":
        assert last_lane_s == pytest.approx(max(lane.end_s for lane in expected.lanes), rel=1e-9)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("scheme", ["per_tensor", "omgs", "ssfusion_oi", "hipress", "espresso", "ddp", "ssgd"])
def test_equals_the_reference_timeline_on_random_instances(scheme, seed):
    rng = random.Random(seed)
    profile = make_profile(*random_instance(rng, rng.randint(1, 30)))
    costs = random_costs(rng, rng.choice([2, 4, 16]))
    if scheme.startswith("ssfusion"):
        costs = replace(costs, decode=Curve.affine(*decode_of(scheme)))
    plan = make_plan(scheme, profile, costs, usual(scheme))
    found = simulate(plan, profile, system_of(costs, 0.01)).iteration_s
    slack_s = 2e-10 * costs.world_size * len(profile.tensors) / 0.01  # k is a whole number, F's share of n is not
    assert found == pytest.approx(evaluate(plan, profile, costs).total_s, rel=1e-9, abs=slack_s)
