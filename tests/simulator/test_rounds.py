"""A step of a training in rounds, in virtual time: what `every` divides, and what a delay hides."""

from dataclasses import replace

import pytest
from plan.instances import affine_costs, instance_a
from simulator.systems import system_of

from ssfx.advice.cases import step_inside
from ssfx.core.errors import ConfigError
from ssfx.perf_model.build_timing_model import system_on
from ssfx.perf_model.cluster import Cluster, Link
from ssfx.planning.rounds import Rounds
from ssfx.schemes.make_plan import make_plan
from ssfx.simulator.result import simulate

PROFILE = replace(instance_a(), forward_s=0.004, step_s=0.001, other_s=0.0005)
COSTS = affine_costs()
SYSTEM = system_of(COSTS, 0.01, "runtime", 0.4)
PLAN = make_plan("diloco", PROFILE, COSTS)
EACH_STEP = simulate(replace(PLAN, rounds=None), PROFILE, SYSTEM)


def of(*rounds, **options):
    return simulate(replace(PLAN, rounds=Rounds(*rounds)), PROFILE, SYSTEM, **options)


def test_rounds_of_one_step_are_a_step_that_exchanges_at_its_end():
    one = of(1)
    assert one.iteration_s == pytest.approx(EACH_STEP.iteration_s, rel=1e-9)
    assert one.exposed_comm_s == pytest.approx(EACH_STEP.exposed_comm_s, rel=1e-9)
    assert one.volumes == EACH_STEP.volumes


def test_what_an_exchange_adds_is_shared_by_the_steps_of_a_round():
    added_s = EACH_STEP.iteration_s - PROFILE.alone_s()
    for every in (2, 8, 500):
        assert of(every).iteration_s == pytest.approx(PROFILE.alone_s() + added_s / every, rel=1e-9)
    assert of(8).volumes.sent == EACH_STEP.volumes.sent // 8


def test_a_delay_hides_waiting_behind_so_many_steps_for_each_fragment():
    exposed_s, alone_s = EACH_STEP.exposed_comm_s, PROFILE.alone_s()
    delay = 1 + int(exposed_s / (2 * alone_s))
    assert of(2 * (delay + 1), 2, delay).exposed_comm_s == pytest.approx(0.0, abs=1e-12)
    slow = system_of(affine_costs(), 50.0, "runtime", 0.4)
    whole = simulate(replace(PLAN, rounds=None), PROFILE, slow)
    found = simulate(replace(PLAN, rounds=Rounds(8, 2, 1)), PROFILE, slow)
    left_s = max(0.0, whole.exposed_comm_s - 2 * alone_s)
    assert found.exposed_comm_s == pytest.approx(left_s / 8, abs=1e-9)


def test_micro_batches_make_a_step_longer_and_a_round_s_share_smaller():
    once, twice = of(4), of(4, accumulate=2)
    alone_s = PROFILE.forward_s + PROFILE.backward_s
    assert twice.iteration_s - once.iteration_s == pytest.approx(alone_s, rel=1e-9)


def test_between_groups_a_step_is_that_of_ddp_inside_and_a_round_crosses():
    slow, fast = Link(1.0, 0.9, 1e-4), Link(300.0, 0.8, 1e-6)
    cluster = Cluster("two", "", 2, 4, "a100", fast, slow, "made up")
    system = system_on(cluster)
    plan = make_plan("diloco", PROFILE, system.planning_costs("bf16", None), {"every": 10, "ranks_per_group": 4})
    inside = step_inside(plan, PROFILE, cluster, 1)
    found = simulate(plan, PROFILE, system, inside=inside)
    each_step = simulate(replace(plan, rounds=None), PROFILE, system)
    added_s = each_step.iteration_s - PROFILE.alone_s()
    assert inside.plan.world_size == 4
    assert inside.iteration_s > PROFILE.alone_s()
    assert found.iteration_s == pytest.approx(inside.iteration_s + added_s / 10, rel=1e-9)
    assert found.volumes.sent == inside.volumes.sent + each_step.volumes.sent // 10
    cut = make_plan("diloco", PROFILE, affine_costs(world_size=12), {"ranks_per_group": 3})
    with pytest.raises(ConfigError, match="nodes of 4 devices cut groups of ranks_per_group=3; use ranks_per_group=2"):
        step_inside(cut, PROFILE, replace(cluster, nodes=3), 1)
