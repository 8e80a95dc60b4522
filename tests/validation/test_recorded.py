"""Recorded runs and their simulation: the plan they executed, the ranks at work, how fast the machine computed."""

import json
from dataclasses import replace
from statistics import median

import pytest
from plan.instances import ORIGIN, affine_costs, instance_a
from simulator.systems import system_of

from experiments.common.validation import __main__ as validation
from experiments.common.validation import recorded
from experiments.common.validation.ground_truth import load
from experiments.common.validation.groups import middle_runs, repeatability
from experiments.common.validation.recorded import (
    EXPERIMENT,
    ComputeTime,
    comparisons,
    recorded_plans,
    stretched,
    write_plans,
)
from ssfx.core.errors import RunError
from ssfx.core.files import read_json
from ssfx.core.paths import data_dir, results_dir
from ssfx.lab.results.store import Store
from ssfx.perf_model.recorded_times import file_name, recorded_system, written_dir
from ssfx.planning.costs import Overheads
from ssfx.planning.plan import TensorSpec
from ssfx.planning.profile import Profile
from ssfx.schemes.make_plan import make_plan
from ssfx.simulator import SelectionStats, simulate


@pytest.fixture(scope="module")
def rows():
    return [row for row in Store(results_dir()).reference_rows() if row.case.experiment == EXPERIMENT]


def test_the_committed_runs_cover_what_is_claimed(rows):
    cases = [row.case for row in rows]
    assert len({case.model for case in cases}) >= 4
    assert len({case.scheme for case in cases}) >= 8
    assert {(case.cluster.name.partition("x")[2], case.world_size) for case in cases} == {
        (rate, ranks) for rate in ("", "1gbit", "100mbit") for ranks in (2, 4)
    }
    assert {row.origin.kind for row in rows} == {"measured", "emulated"}
    assert all(row.manifest["code"]["dirty"] is False for row in rows)


def test_every_run_is_simulated_by_the_plan_it_executed(rows):
    found = comparisons(rows, recorded_plans())
    assert [one.row.run_id for one in found] == [row.run_id for row in rows]
    for one in found:
        assert one.simulated.plan.digest == one.row.manifest["plan_digest"]
        assert one.simulated.plan.scheme == one.row.case.scheme
        case = one.row.case
        assert [step.actual_s for step in one.steps] == one.row.samples["iteration_s"]
        assert len(one.steps) == case.steps - case.warmup_steps
        assert all(min(step.compute.forward, step.compute.backward, *step.parts.values()) >= 0 for step in one.steps)
        assert sum(actual_s for _, actual_s in one.parts().values()) >= 0.5 * one.row.metrics["iteration_s"]


def test_both_groups_say_what_they_know_of_the_scored_runs(rows):
    blind, stepwise = load("recorded")
    assert len(blind.pairs) == len(stepwise.pairs) == len(middle_runs(rows))
    assert "no training run" in blind.calibrated_on
    assert "a pass without exchange" in stepwise.calibrated_on.partition("; but ")[2]
    assert [pair.actual for pair in blind.pairs] == [pair.actual for pair in stepwise.pairs]


def test_the_part_beyond_compute_is_what_a_pass_without_exchange_leaves(rows):
    (one,) = comparisons([row for row in rows if "100mbit" in row.case.cluster.name][:1], recorded_plans())
    passes = zip(one.row.samples["control_forward_s"], one.row.samples["control_backward_s"], strict=True)
    left = [step_s - sum(both) for step_s, both in zip(one.row.samples["iteration_s"], passes, strict=True)]
    blind, stepwise = one.beyond_compute(), one.beyond_compute(by="steps")
    assert blind.actual == stepwise.actual == pytest.approx(median(left))
    assert 0 < blind.predicted < one.simulated.iteration_s
    idle = replace(one, steps=tuple(replace(step, pass_s=0.96 * step.actual_s) for step in one.steps))
    assert idle.beyond_compute() is None


def again(row, repeat, factor):
    metrics = row.metrics | {"iteration_s": factor * row.metrics["iteration_s"]}
    case = replace(row.case, repeat=repeat)
    return replace(row, run_id=case.run_id, case=case, metrics=metrics)


def test_of_repeats_the_middle_run_is_scored(rows):
    first, second, third = middle_runs(rows)[:3]
    repeats = [again(first, 7, 1.1), again(first, 8, 0.9), first, third, second, again(second, 7, 1.5)]
    assert middle_runs(repeats) == [first, third, second]


def test_repeats_say_how_near_a_simulation_can_come(rows):
    first, second, third = middle_runs(rows)[:3]
    assert repeatability([first, second, third]) == ()
    repeats = [first, again(first, 7, 1.1), again(first, 8, 0.9), second, again(second, 7, 1.5), third]
    (said,) = repeatability(repeats)
    assert "repeats of the same case are 30.0 % apart (median over 2 cases, at most 40 %)" in said


def test_a_run_without_its_plan_or_its_system_is_an_error(rows, monkeypatch):
    with pytest.raises(RunError, match="is not in"):
        comparisons(rows[:1], {})
    monkeypatch.setattr(recorded, "recorded_system", lambda *_name, **_where: None)
    with pytest.raises(RunError, match="ssfx profile network cluster="):
        comparisons(rows[:1], recorded_plans())


def test_plans_are_kept_or_found_where_the_run_left_them(rows, tmp_path):
    plans = recorded_plans()
    one, other = rows[0], next(row for row in rows if row.manifest["plan_digest"] != rows[0].manifest["plan_digest"])
    texts = [plans[row.manifest["plan_digest"]].to_json() for row in (one, other)]
    runs, path = tmp_path / "runs", tmp_path / "plans.json"
    path.write_text(f"[{texts[0]}]")
    with pytest.raises(RunError, match=r"plan\.json cannot be read: No such file"):
        write_plans([one, other], runs, path)
    folder = runs / other.run_id / f"attempt-{other.manifest['attempt']}"
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text(texts[1])
    assert write_plans([other, one, one], runs, path) == 2
    assert [json.dumps(plan, separators=(",", ":")) for plan in read_json(path)] == texts[::-1]
    path.write_text("[]")
    (folder / "plan.json").write_text(texts[0])
    with pytest.raises(RunError, match="is not the one that was executed"):
        write_plans([other], runs, path)


def test_tensors_in_another_order_are_ready_no_sooner_than_those_before_them():
    tensors = tuple(TensorSpec(name, (2,)) for name in "abc")
    profile = Profile("m", tensors, (1.0, 2.0, 3.0), 0.5, ORIGIN)
    turned = profile.in_order(tuple(reversed(tensors)))
    assert [spec.name for spec in turned.tensors] == ["c", "b", "a"]
    assert turned.ready_gap_s == (6.0, 0.0, 0.0)
    assert turned.in_order(turned.tensors) == turned
    assert profile.in_order(tensors) == profile


def test_a_stretched_profile_computes_slower_and_sends_as_fast():
    costs, profile = affine_costs(), replace(instance_a(), forward_s=0.01, step_s=0.002, other_s=0.001)
    system = replace(system_of(costs, 0.01, "runtime"), overheads=Overheads(hook_s=1e-5, finish_s=1e-4))
    plan = make_plan("fused_all", profile, costs, {"compressor": "topk", "density": 0.01})
    usual = simulate(plan, profile, system)
    slow = simulate(plan, stretched(profile, ComputeTime(3.0, 2.0, 2.0)), system)
    hooks_s = len(plan.tensors) * system.overheads.hook_s  # the runtime's own code and the compressors keep their time
    for stage, kept_s in (("backward", hooks_s), ("step", 0.0), ("other", system.overheads.finish_s)):
        assert slow.on_device_s(stage) == pytest.approx(2 * usual.on_device_s(stage) - kept_s)
    for stage in ("compress", "decompress"):
        assert slow.on_device_s(stage) == pytest.approx(usual.on_device_s(stage))
    assert slow.on_device_s("forward") == pytest.approx(3 * usual.on_device_s("forward"))
    assert slow.comm_s == pytest.approx(usual.comm_s)


def test_every_step_has_the_compute_time_of_the_pass_before_it(rows):
    profile = Profile("m", (TensorSpec("a", (2,)),), (3.0,), 1.0, ORIGIN)
    samples = {"control_forward_s": [2.0, 1.0], "control_backward_s": [4.5, 3.0]}
    found = recorded.compute_times(replace(rows[0], samples=samples), profile)
    assert found == [ComputeTime(2.0, 1.5, 6.5 / 4), ComputeTime(1.0, 1.0, 1.0)]
    with pytest.raises(RunError, match=f"{rows[0].run_id} has no passes without exchange .* time_compute_only=true"):
        recorded.compute_times(replace(rows[0], samples={}), profile)


def slower(row, factor, steps):
    """Return a run of which these steps, and the passes before them, took `factor` times as long."""
    samples = {
        name: [value * (factor if i in steps else 1.0) for i, value in enumerate(values)]
        for name, values in row.samples.items()
        if name != "greatest_density"
    }
    return replace(row, samples=row.samples | samples)


def test_a_run_whose_machine_slows_down_midway_is_compared_step_by_step(rows):
    row = next(row for row in rows if row.case.scheme == "ddp" and row.case.cluster.name == "local")
    count = len(row.samples["iteration_s"])
    usual, later, always = (
        comparisons([one], recorded_plans())[0]
        for one in (row, slower(row, 2.0, range(count // 2, count)), slower(row, 2.0, range(count)))
    )
    assert always.compute == pytest.approx(2 * usual.compute)
    assert [step.compute for step in later.steps] == [
        *(step.compute for step in usual.steps[: count // 2]),
        *(step.compute for step in always.steps[count // 2 :]),
    ]
    errors = sorted(one.pair(by="steps").error for one in (usual, later, always))
    assert errors[2] - errors[0] < 0.1  # where one factor for the whole run would be off by half


def test_what_a_compressor_lets_pass_is_known_from_the_same_training_on_other_networks(rows):
    own = next(row for row in rows if row.case.scheme == "micro")
    wide = [10 * own.case.density] * len(own.samples["greatest_density"])
    cases = [
        replace(own.case, **changes)
        for changes in ({"cluster": "emulated_4x10gbit"}, {"world_size": 9}, {"scheme": "oktopk"}, {"model": "m"})
    ]
    there = [
        replace(own, run_id=case.run_id, case=case, samples=own.samples | {"greatest_density": wide}) for case in cases
    ]
    assert recorded.density_elsewhere(own, [own, *there]) == wide[0]
    assert recorded.density_elsewhere(own, [own, *there[1:]]) is None
    dense = replace(there[0], samples={})
    assert recorded.density_elsewhere(own, [dense]) is None
    alone, *_ = comparisons([own], recorded_plans())
    assert alone.at_known_density == alone.simulated
    same = replace(own.case, cluster="x")
    other = next(row for row in rows if replace(row.case, cluster="x") == same and row != own)
    wide = [10 * own.case.density] * len(other.samples["greatest_density"])
    found, _ = comparisons([own, replace(other, samples=other.samples | {"greatest_density": wide})], recorded_plans())
    assert found.simulated.iteration_s == alone.simulated.iteration_s
    assert found.at_known_density.iteration_s > found.simulated.iteration_s


def test_only_the_stepwise_group_knows_what_the_compressor_let_pass_in_the_very_run(rows):
    row = next(row for row in rows if row.case.scheme == "micro")
    wide = [10 * row.case.density] * len(row.samples["greatest_density"])
    more_sent = replace(row, samples=row.samples | {"greatest_density": wide})
    usual, more = (comparisons([one], recorded_plans())[0] for one in (row, more_sent))
    assert more.simulated.iteration_s == usual.simulated.iteration_s
    assert all(b.predicted_s > a.predicted_s for a, b in zip(usual.steps, more.steps, strict=True))
    mixed = next(row for row in rows if row.case.scheme == "hipress")  # its dense tensors count as sent
    plan = recorded_plans()[mixed.manifest["plan_digest"]]
    assert recorded.selected(mixed.case, plan, 0.5) == SelectionStats()


def test_validation_takes_the_shipped_systems_whatever_was_measured_here(rows, tmp_path, monkeypatch):
    before = comparisons(rows[:1], recorded_plans())[0].simulated.iteration_s
    monkeypatch.setenv("SSFX_RESULTS", str(tmp_path))
    case = rows[0].case
    system = recorded_system(case.cluster.name, case.world_size)
    slow = replace(system, exchange={name: curve.scaled(100) for name, curve in system.exchange.items()})
    written_dir().mkdir(parents=True)
    (written_dir() / file_name(case.cluster.name, case.world_size)).write_text(slow.to_json())
    assert recorded_system(case.cluster.name, case.world_size) != system
    assert comparisons(rows[:1], recorded_plans())[0].simulated.iteration_s == before


def test_the_scores_that_advice_reads_are_those_of_the_groups():
    assert read_json(data_dir() / "validation.json") == validation.scores()
