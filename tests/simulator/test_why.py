"""Differences along critical paths sum to the difference of the iterations, and the sentence names the largest."""

import random

import pytest
from plan.instances import affine_costs, instance_a, make_profile, random_costs, random_instance
from plan.options import usual
from simulator.systems import system_of

from ssfx.schemes.make_plan import make_plan
from ssfx.simulator import simulate, why
from ssfx.simulator.why import differences


def step(scheme, profile, costs, occupancy=0.0):
    plan = make_plan(scheme, profile, costs, usual(scheme))
    return simulate(plan, profile, system_of(costs, 0.01, "runtime", occupancy))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("scheme", ["per_tensor", "ssfusion_oi", "espresso", "oktopk"])
def test_stages_sum_to_the_difference(scheme, seed):
    rng = random.Random(seed)
    profile = make_profile(*random_instance(rng, rng.randint(1, 30)))
    costs = random_costs(rng, rng.choice([2, 4, 16]))
    first, second = step("ddp", profile, costs, 0.3), step(scheme, profile, costs, 0.3)
    total_s = sum(part.more_s for part in differences(first, second))
    assert total_s == pytest.approx(second.iteration_s - first.iteration_s, abs=1e-9)


def test_the_sentence_says_how_much_and_names_the_largest_stages():
    profile, costs = instance_a(), affine_costs()
    first, second = step("ddp", profile, costs), step("per_tensor", profile, costs)
    more_ms = 1e3 * (second.iteration_s - first.iteration_s)
    line = why(first, second)[0]
    assert line.startswith(f"per_tensor takes {abs(more_ms):.2f} ms ({abs(more_ms) / 1e3 / first.iteration_s:.1%}) ")
    assert ("longer" if more_ms > 0 else "less") + " than ddp" in line
    largest = max(differences(first, second), key=lambda part: abs(part.more_s))
    assert line.partition("critical path ")[2].startswith(f"{1e3 * largest.more_s:+.2f} ms ")
    back = why(second, first, ("slow", "quick"))[0]
    assert back.startswith("quick takes ")
    assert ("less" if more_ms > 0 else "longer") + " than slow" in back


def test_equal_steps_are_said_to_be_equal():
    one = step("ddp", instance_a(), affine_costs())
    assert why(one, one) == [f"ddp takes as long as ddp, {1e3 * one.iteration_s:.2f} ms, and for the same reasons"]


def test_contention_is_told_apart():
    profile, costs = instance_a(), affine_costs()
    free, taxed = step("per_tensor", profile, costs), step("per_tensor", profile, costs, 0.9)
    assert free.slowdown_s() == pytest.approx(0, abs=1e-12)
    assert taxed.slowdown_s() > 1e-5
    assert f"cost {1e3 * taxed.slowdown_s():.2f} ms, in free 0.00 ms" in why(free, taxed, ("free", "taxed"))[1]
    assert len(why(free, step("ddp", profile, costs))) == 1
