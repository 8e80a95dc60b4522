"""What must hold for every simulation, whatever its inputs: bounds, monotony, and the cases with known answers."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan.instances import affine_costs, instance_a, make_profile, random_costs, random_instance
from plan.options import usual
from simulator.systems import system_of, with_contention, without_times

from ssfx.collectives import collectives
from ssfx.perf_model.cluster import Cluster, Link
from ssfx.perf_model.timing_model import Contention
from ssfx.planning.costs import Curve, Overheads
from ssfx.planning.plan import TensorSpec
from ssfx.schemes import schemes
from ssfx.schemes.make_plan import make_plan
from ssfx.simulator import SelectionStats, simulate
from ssfx.simulator.pricing.message_sizes import plan_bytes, plan_traffic
from ssfx.simulator.pricing.schedule import schedule
from ssfx.simulator.pricing.task import Task
from ssfx.simulator.pricing.timeline import evaluate

SOME = ["ddp", "wfbp", "ssgd", "per_tensor", "fused_all", "hipress", "ssfusion_oi", "oktopk", "spardl", "micro"]


def instance(scheme, seed, world_size=None, **changes):
    rng = random.Random(seed)
    profile = make_profile(*random_instance(rng, rng.randint(1, 25)))
    costs = random_costs(rng, world_size or rng.choice([2, 4, 16]))
    plan = make_plan(scheme, profile, costs, usual(scheme))
    occupancy = rng.choice([0.0, 0.3, 0.8])
    return plan, profile, system_of(costs, 0.01, rng.choice(["batched", "per_call"]), occupancy)


@pytest.mark.parametrize("scheme", SOME)
@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_the_critical_path_spans_the_step_without_a_gap(scheme, seed):
    found = simulate(*instance(scheme, seed))
    path = found.critical_path
    assert path[0].start_s == 0
    assert path[-1].end_s == pytest.approx(found.iteration_s)
    for earlier, later in pairwise(path):
        assert later.start_s == pytest.approx(earlier.end_s, abs=1e-12)
    assert sum(found.critical_s().values()) == pytest.approx(found.iteration_s)
    assert found.slowdown_s() >= -1e-12


@pytest.mark.parametrize("scheme", SOME)
@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_no_resource_does_more_than_time_allows(scheme, seed):
    found = simulate(*instance(scheme, seed))
    for resource in ("device", "host", "network"):
        assert sum(t.work_s for t in found.tasks if t.resource == resource) <= found.iteration_s * (1 + 1e-9)
    needed_s = sum(t.work_s * t.demand for t in found.tasks)  # computing power is 1
    assert needed_s <= found.iteration_s * (1 + 1e-9)
    parts = found.metrics(1)
    stages = ("forward_s", "backward_s", "sparsify_s", "exposed_comm_s", "step_s", "other_s")
    assert sum(parts[name] for name in stages) == pytest.approx(found.iteration_s)


@pytest.mark.parametrize("scheme", SOME)
@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 10**6), faster=st.floats(1.0, 20.0))
def test_a_better_network_is_never_slower(scheme, seed, faster):
    plan, profile, system = instance(scheme, seed)
    before_s = simulate(plan, profile, system).iteration_s
    better = {
        name: Curve(curve.sizes, tuple(s / faster for s in curve.seconds), curve.unbounded)
        for name, curve in system.exchange.items()
    }
    assert simulate(plan, profile, replace(system, exchange=better)).iteration_s <= before_s * (1 + 1e-9)


@pytest.mark.parametrize("scheme", ["topk", "per_tensor", "fused_all"])
@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_fewer_bytes_are_never_slower(scheme, seed):
    rng = random.Random(seed)
    profile = make_profile(*random_instance(rng, rng.randint(1, 25)))
    costs = random_costs(rng, 4)
    times = []
    for density in (0.001, 0.01, 0.1):
        plan = make_plan(scheme, profile, costs, usual(scheme, density))
        times.append(simulate(plan, profile, system_of(costs, 0.01)).iteration_s)
    assert times == sorted(times)


def test_no_link_carries_more_than_its_bandwidth():
    link = Link(10.0, 1.0, 0.0)
    cluster = Cluster("test", "", 4, 1, "cpu", link, link, "")
    profile = instance_a()
    for scheme in SOME:
        costs = replace(affine_costs(4), exchange=cluster.exchange())
        plan = make_plan(scheme, profile, costs, usual(scheme))
        found = simulate(plan, profile, without_times(system_of(costs, 0.01)))
        assert found.iteration_s >= found.metrics(1)["sent_bytes"] * link.beta_s_per_byte * (1 - 1e-6), scheme


def test_density_1_with_a_free_codec_is_dense():
    costs, profile = affine_costs(), instance_a()
    system = without_times(system_of(costs, 1.0))
    dense = simulate(make_plan("fused_all", profile, costs, {"density": 1.0}), profile, system)
    ddp = simulate(make_plan("ssgd", profile, costs), profile, system)
    assert dense.iteration_s == pytest.approx(ddp.iteration_s, rel=1e-12)
    assert dense.on_device_s("compress", "decompress") == 0


@pytest.mark.parametrize("scheme", schemes.names())
def test_one_rank_exchanges_nothing(scheme):
    profile = replace(instance_a(), forward_s=0.004, step_s=0.001)
    costs = affine_costs(1)
    found = simulate(make_plan(scheme, profile, costs, usual(scheme)), profile, system_of(costs, 0.01))
    assert found.iteration_s == pytest.approx(0.004 + profile.backward_s + 0.001)
    assert found.comm_s == found.exposed_comm_s == found.on_device_s("compress", "decompress") == 0
    assert {task.stage for task in found.tasks} == {"forward", "backward", "step", "other"}


@pytest.mark.parametrize("scheme", schemes.names())
def test_every_scheme_can_be_simulated_and_twice_gives_the_same(scheme):
    costs, profile = affine_costs(), instance_a()
    plan = make_plan(scheme, profile, costs, usual(scheme))
    system = system_of(costs, 0.01, "runtime", 0.4)
    one, two = simulate(plan, profile, system), simulate(plan, profile, system)
    assert one.tasks == two.tasks
    assert one.iteration_s >= max(profile.backward_s, one.comm_s)
    shuffled = replace(
        system,
        codecs=dict(reversed(system.codecs.items())),
        exchange=dict(reversed(system.exchange.items())),
        contention=Contention(dict(reversed(system.contention.occupancy.items()))),
    )
    assert simulate(plan, profile, shuffled).tasks == one.tasks


def test_an_exchange_that_needs_the_processor_slows_backward_down():
    costs, profile = affine_costs(), instance_a()
    plan = make_plan("wfbp", profile, costs)
    free = simulate(plan, profile, system_of(costs, 0.01))
    busy = simulate(plan, profile, system_of(costs, 0.01, occupancy=0.3))
    assert busy.on_device_s("backward") > free.on_device_s("backward")
    assert busy.iteration_s >= free.iteration_s
    lost_s = busy.on_device_s("backward") - free.on_device_s("backward")
    assert lost_s <= 0.3 * busy.comm_s * (1 + 1e-9)


def test_a_longer_selection_is_charged_where_messages_follow_it():
    costs, profile = affine_costs(), instance_a()
    system = system_of(costs, 0.01)
    options = {"compressor": "gaussiank", "density": 0.01}
    plan = make_plan("per_tensor", profile, costs, options)
    asked = simulate(plan, profile, system)
    twice = simulate(plan, profile, system, selection=SelectionStats((("gaussiank", 2.0),)))
    assert twice.on_device_s("decompress") > asked.on_device_s("decompress")


def test_bytes_are_those_of_the_selection_and_of_what_all_ranks_select_together():
    costs, profile = affine_costs(), instance_a()
    system = system_of(costs, 0.01)
    plan = make_plan("oktopk", profile, costs, {"density": 0.01})
    asked = simulate(plan, profile, system)
    assert asked.metrics(1)["contributed_bytes"] == plan_bytes(plan)
    assert asked.metrics(1)["sent_bytes"] == plan_traffic(plan).sent_bytes
    compressor = plan.buckets[0].lanes[0].segments[0].compressor
    twice = simulate(plan, profile, system, selection=SelectionStats(((compressor, 2.0),))).metrics(1)
    assert twice["contributed_bytes"] == pytest.approx(2 * plan_bytes(plan))
    assert twice["sent_bytes"] > 1.9 * plan_traffic(plan).sent_bytes
    alike = simulate(plan, profile, system, selection=SelectionStats(build_up=1.0)).metrics(1)
    assert alike["contributed_bytes"] == plan_bytes(plan)
    assert alike["sent_bytes"] < plan_traffic(plan).sent_bytes
    assert alike["iteration_s"] <= asked.iteration_s


def test_accumulation_adds_local_passes_only():
    costs, profile = affine_costs(), replace(instance_a(), forward_s=0.005)
    plan = make_plan("ddp", profile, costs)
    one = simulate(plan, profile, system_of(costs, 0.01))
    three = simulate(plan, profile, system_of(costs, 0.01), accumulate=3)
    assert three.iteration_s - one.iteration_s == pytest.approx(2 * (0.005 + profile.backward_s))
    assert three.comm_s == pytest.approx(one.comm_s)


def test_times_beyond_the_known_range_are_named():
    costs, profile = affine_costs(), instance_a()
    system = system_of(costs, 0.01)
    short = replace(system, exchange={**system.exchange, "all_reduce": Curve((1e3, 1e4), (1e-4, 1e-3))})
    plan = make_plan("ddp", profile, costs)
    assert simulate(plan, profile, system).outside == ()
    (line,) = simulate(plan, profile, short).outside
    assert "all_reduce" in line
    assert "1,000 .. 10,000" in line


def test_a_plan_for_other_ranks_or_tensors_is_refused():
    costs, profile = affine_costs(8), instance_a()
    plan = make_plan("ddp", profile, costs)
    with pytest.raises(ValueError, match="8 ranks, the system has 4"):
        simulate(plan, profile, system_of(affine_costs(4), 0.01))
    with pytest.raises(ValueError, match="different tensors"):
        simulate(plan, make_profile([5], [0.1]), system_of(costs, 0.01))


def test_the_runtime_calls_a_compressor_once_a_lane():
    """On many small tensors in one lane that is what fused compression saves; F(plan) charges every call."""
    costs = affine_costs(4)
    profile = make_profile([1000] * 20, [1e-4] * 20)
    plan = make_plan("ssfusion_naive", profile, costs, {**usual("ssfusion_naive"), "rule": "paper"})
    lanes = sum(not lane.segments[0].dense for _, lane in plan.lanes())
    reference = simulate(plan, profile, system_of(costs, 0.01, "per_call"))
    runtime = simulate(plan, profile, system_of(costs, 0.01, "batched"))
    calls = [task for task in runtime.tasks if task.stage == "compress"]
    assert len(calls) == lanes < sum(task.stage == "compress" for task in reference.tasks)
    assert runtime.iteration_s < reference.iteration_s
    assert reference.iteration_s == pytest.approx(evaluate(plan, profile, costs).total_s, abs=1e-5)


def measured_under_compute(system, slower, power):
    """The system with exchanges that take `slower` times as long under compute, and so much of its power."""
    longer = {name: Curve.affine(2 * slower * 1e-5, 8e-10 * slower) for name in system.exchange}
    used = {name: Curve.affine(2 * power * 1e-5, 8e-10 * power) for name in system.exchange}
    return with_contention(system, under_compute_s=longer, under_compute_cpu_s=used)


def test_measured_contention_never_makes_a_step_faster():
    costs, profile = affine_costs(), instance_a()
    plan = make_plan("wfbp", profile, costs)
    free = system_of(costs, 0.01)
    busy = simulate(plan, profile, measured_under_compute(free, 3.0, 0.6))
    assert busy.iteration_s > simulate(plan, profile, free).iteration_s
    assert sum(busy.critical_s().values()) == pytest.approx(busy.iteration_s)


def test_the_runtimes_own_work_is_charged_where_it_is_done():
    costs, profile = affine_costs(), instance_a()
    system = replace(
        system_of(costs, 0.01, "batched"),
        overheads=Overheads(
            hook_s=1e-4,
            add_s=2e-4,
            fill_s_per_byte=1e-10,
            lane_s=3e-4,
            result_s=6e-5,
            result_s_per_byte=2e-10,
            finish_s=5e-4,
            offload_s=7e-4,
            sum_s=8e-5,
            decode_s=9e-4,
        ),
    )
    dense, sparse = (make_plan(name, profile, costs, usual(name)) for name in ("wfbp", "per_tensor"))
    tensors = len(profile.tensors)
    of_dense, plain = simulate(dense, profile, system), simulate(dense, profile, system_of(costs, 0.01, "batched"))
    more_s = of_dense.on_device_s("backward") - plain.on_device_s("backward")
    assert more_s == pytest.approx(tensors * (1e-4 + 3e-4) + 1e-10 * profile.nbytes)
    assert of_dense.on_device_s("other") == pytest.approx(5e-4)
    assert of_dense.on_device_s("decompress") == pytest.approx(tensors * 6e-5 + 2e-10 * profile.nbytes)
    lanes = len(sparse.launch_order)
    of_sparse = simulate(sparse, profile, system)
    bare = simulate(sparse, profile, system_of(costs, 0.01, "batched"))
    encoded_s = bare.on_device_s("compress")
    assert of_sparse.on_device_s("backward") == pytest.approx(profile.backward_s + tensors * 1e-4 + lanes * 3e-4)
    assert of_sparse.on_device_s("compress") == pytest.approx(encoded_s + tensors * 2e-4)
    written_s = of_sparse.on_device_s("decompress") - bare.on_device_s("decompress")
    assert written_s == pytest.approx(tensors * 8e-5 + 9e-4 + 2e-10 * profile.nbytes)
    hosted = on_host(sparse)
    segments = sum(len(lane.segments) for _, lane in hosted.lanes())
    handing_over_s = simulate(hosted, profile, system).on_device_s("backward") - of_sparse.on_device_s("backward")
    assert handing_over_s == pytest.approx(segments * 7e-4)


def test_what_is_not_gathered_as_pairs_is_copied_tensor_by_tensor():
    costs, profile = affine_costs(), instance_a()
    system = replace(system_of(costs, 0.01, "batched"), overheads=Overheads(result_s=6e-5, sum_s=8e-5))
    for options in ({"compressor": "signsgd"}, {"compressor": "cltk", "density": 0.01}):
        plan = make_plan("per_tensor", profile, costs, options)
        written_s = simulate(plan, profile, system).on_device_s("decompress")
        written_s -= simulate(plan, profile, system_of(costs, 0.01, "batched")).on_device_s("decompress")
        assert written_s == pytest.approx(len(profile.tensors) * 6e-5)


def test_further_tensors_of_a_segment_cost_less_than_segments_of_their_own():
    costs, profile = affine_costs(), instance_a()
    usual_system = system_of(costs, 0.01, "batched")
    codecs = {name: replace(codec, tensor_s=1e-4) for name, codec in usual_system.codecs.items()}
    together = make_plan("fused_all", profile, costs, {"compressor": "topk", "density": 0.01})
    apart = make_plan("per_tensor", profile, costs, {"compressor": "topk", "density": 0.01})
    segments = [segment for _, lane in together.lanes() for segment in lane.segments]
    further = sum(len(segment.tensors) - 1 for segment in segments)
    assert further > 0
    for plan, expected in ((together, further), (apart, 0)):
        more_s = simulate(plan, profile, replace(usual_system, codecs=codecs)).on_device_s("compress")
        more_s -= simulate(plan, profile, usual_system).on_device_s("compress")
        assert more_s == pytest.approx(expected * 1e-4)


def test_pieces_of_a_segment_cost_more_than_its_other_tensors():
    matrices = [TensorSpec(f"m{i}", (64, 64)) for i in range(5)]
    vectors = [TensorSpec(f"v{i}", (64,)) for i in range(7)]
    profile = replace(make_profile([2] * 12, [1e-3] * 12), tensors=(*matrices, *vectors))
    usual_system = system_of(affine_costs(), 0.01, "batched")
    plan = make_plan("acpsgd", profile, affine_costs(), {})
    assert [len(lane.segments) for _, lane in plan.lanes()] == [1]
    for changes, further in (({"piece_s": 1e-4}, 4), ({"tensor_s": 1e-4}, 7), ({"segment_s": 1e-4}, 0)):
        codecs = {name: replace(codec, **changes) for name, codec in usual_system.codecs.items()}
        more_s = simulate(plan, profile, replace(usual_system, codecs=codecs)).on_device_s("compress")
        more_s -= simulate(plan, profile, usual_system).on_device_s("compress")
        assert more_s == pytest.approx(further * 1e-4)


def on_host(plan):
    """Return `plan` with every segment compressed on the host."""
    buckets = [
        replace(bucket, lanes=tuple(replace(lane, segments=hosted(lane.segments)) for lane in bucket.lanes))
        for bucket in plan.buckets
    ]
    return replace(plan, buckets=tuple(buckets))


def hosted(segments):
    return tuple(replace(segment, placement="host") for segment in segments)


def test_nothing_is_exchanged_beside_a_blocking_exchange_once_it_has_begun():
    def messages(*blocking):
        return [Task("exchange", str(i), "network", 1.0, 0.0, blocking=one) for i, one in enumerate(blocking)]

    assert schedule(messages(True, True), in_flight=2) == pytest.approx(2.0)
    assert schedule(messages(True, False), in_flight=2) == pytest.approx(2.0)
    assert schedule(messages(False, True), in_flight=2) == pytest.approx(1.0)  # it joins one that is under way
    plan = make_plan("per_tensor", instance_a(), affine_costs(), {"compressor": "topk", "density": 0.01})
    together = with_contention(system_of(affine_costs(), 0.01, "batched"), in_flight=2)
    lanes = [task for task in simulate(plan, instance_a(), together).tasks if task.resource == "network"]
    blocking = [collectives.build(lane.collective).blocking for _, lane in plan.lanes()]
    assert [task.blocking for task in lanes] == blocking


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(1.0, 6.0), st.floats(0.0, 3.0), st.integers(1, 3))
def test_measured_contention_leaves_every_law_in_place(seed, slower, power, in_flight):
    """Whatever exchanges take under compute: the critical path spans the step, and spans have no negative length."""
    generator = random.Random(seed)
    profile, costs = make_profile(*random_instance(generator, 6)), random_costs(generator, 4)
    measured = measured_under_compute(system_of(costs, 0.01, "batched"), slower, power)
    system = with_contention(measured, in_flight=in_flight)
    for scheme in ("wfbp", "per_tensor"):
        found = simulate(make_plan(scheme, profile, costs, usual(scheme)), profile, system)
        assert all(task.end_s >= task.start_s >= 0 for task in found.tasks)
        path = found.critical_path
        assert path[0].start_s == 0
        assert path[-1].end_s == found.iteration_s
        assert all(earlier.end_s == later.start_s for earlier, later in pairwise(path))
        assert found.slowdown_s() >= 0
        assert found.comm_s <= sum(task.seconds for task in found.tasks if task.stage == "exchange") + 1e-12


def test_a_message_of_two_rounds_blocks_as_in_the_runtime():
    profile, costs = instance_a(), affine_costs()
    plan = make_plan("per_tensor", profile, costs, {"compressor": "cltk", "density": 0.01})
    found = simulate(plan, profile, system_of(costs, 0.01, "batched"))
    assert all(task.blocking for task in found.tasks if task.resource == "network")
