"""`ssfx simulate` prints what the simulator computed, explains differences, and refuses what has no effect."""

import json
import subprocess
import sys
from dataclasses import asdict

import pytest
from refusals import output, refusal

from ssfx.advice.cases import simulate_case
from ssfx.config.simulations import resolve_simulations
from ssfx.core import machine
from ssfx.perf_model.recorded_times import recorded_profile, recorded_system
from ssfx.perf_model.target import target_of
from ssfx.schemes.make_plan import make_plan
from ssfx.simulator import simulate as simulated

ONE = ["model=bert_large", "cluster=64gpu", "scheme=ssfusion_oi", "density=0.01"]
TWO = ["model=resnet50", "cluster=16gpu", "scheme=ddp,per_tensor", "density=0.01"]


@pytest.fixture
def run(capsys):
    def simulate(*words):
        return output(capsys, "simulate", *words)

    return simulate


def test_one_case_is_taken_apart(run):
    (case,) = resolve_simulations(ONE)
    target, step = simulate_case(case)
    lines = run(*ONE).splitlines()
    assert lines[0] == "ssfusion_oi for bert_large on 64gpu, 64 ranks, batch 4 each, dgc at density 0.01"
    assert lines[1].startswith(f"simulated: {1e3 * step.iteration_s:.2f} ms per iteration, ")
    assert f"scaling factor {target.profile.alone_s() / step.iteration_s:.3f}" in lines[1]
    path = lines.index(next(line for line in lines if line.startswith("critical path")))
    shown_ms = [float(line.split()[1]) for line in lines[path + 1 :] if line.split()[0] in step.critical_s()]
    assert sum(shown_ms) == pytest.approx(1e3 * step.iteration_s, abs=0.05)
    assert f"exchange: {1e3 * step.comm_s:.2f} ms under way, {1e3 * step.exposed_comm_s:.2f} ms exposed" in "".join(
        lines
    )
    assert f"costs: nominal. {target.system.origin.note}" in lines
    assert f"profile: nominal, a100. {target.profile.origin.note}" in lines
    assert lines[-1] == f"plan {step.plan.digest}, calibration {case.calibration}"


def test_every_result_says_what_other_bandwidths_would_do(run):
    """The numbers are those of the case planned and simulated anew on a network of half and twice the rate."""
    (case,) = resolve_simulations(["model=resnet50", "cluster=16gpu", "scheme=ddp"])
    target = target_of(case)
    expected = []
    for factor in (0.5, 2.0):
        other = target.system.at_bandwidth(factor)
        assert other.exchange["all_reduce"](1e9) == pytest.approx(
            target.system.exchange["all_reduce"](1e9) / factor, rel=0.01
        )
        plan = make_plan("ddp", target.profile, other.planning_costs(None, None), {})
        expected.append(simulated(plan, target.profile, other).iteration_s)
    assert expected[0] > expected[1]
    line = (
        f"with half the bus bandwidth {1e3 * expected[0]:.2f} ms, with twice {1e3 * expected[1]:.2f} ms per iteration"
    )
    assert line in run("model=resnet50", "cluster=16gpu", "scheme=ddp").splitlines()
    compared = run(*TWO).splitlines()
    assert f"ddp: {line}" in compared
    assert sum(": with half the bus bandwidth " in one for one in compared) == 2
    assert "bus bandwidth" not in run(
        "model=resnet50", "cluster=16gpu", "cluster.nodes=1", "cluster.devices_per_node=1"
    )


def test_extrapolated_costs_are_told(run):
    words = ["cluster.calibration=published", "cluster=64gpu", "model=resnet152"]
    assert "extrapolated: dgc" in run("scheme=fused_all", *words)
    assert "extrapolated" not in run("scheme=ddp", *words)


def test_json_has_all_that_is_printed(run):
    first, second = (json.loads(line) for line in run(*TWO, "--json").splitlines())
    assert (first["scheme"], second["scheme"]) == ("ddp", "per_tensor")
    assert first["origin"] == "simulated"
    assert sum(second["critical_s"].values()) == pytest.approx(second["metrics"]["iteration_s"])
    single_s = target_of(resolve_simulations(TWO)[0]).profile.alone_s()
    assert first["scaling_factor"] == pytest.approx(single_s / first["metrics"]["iteration_s"])
    assert "why" not in first
    target = target_of(resolve_simulations(TWO)[0])
    assert first["costs"] == asdict(target.system.origin)
    assert (first["costs"]["kind"], first["profile"]["kind"]) == ("nominal", "nominal")
    assert first["profile"]["note"] == target.profile.origin.note


def test_measured_costs_and_profiles_name_the_machine_and_that_they_are_shipped(run):
    words = ["model=resnet_tiny", "cluster=local", "world_size=2", "scheme=ddp"]
    costs, profile = recorded_system("local", 2).origin, recorded_profile("resnet_tiny", "cpu", 2).origin
    lines = run(*words).splitlines()
    assert f"costs: measured on {costs.hardware}, {costs.date}. {costs.note}" in lines
    assert f"profile: measured, cpu on {profile.hardware}, {profile.date}. {profile.note}" in lines
    assert costs.note.endswith("; shipped with ssfx")
    assert profile.note.endswith("; shipped with ssfx")
    assert json.loads(run(*words, "--json"))["profile"] == asdict(profile)


def test_optimizers_are_told_apart_where_only_one_was_measured(run):
    words = ["model=resnet_tiny", "cluster=local", "world_size=2", "batch_size=32", "scheme=ddp"]
    first, second = (json.loads(line) for line in run(*words, "optimizer=sgd,adam", "--json").splitlines())
    assert (first["profile"]["kind"], second["profile"]["kind"]) == ("measured", "nominal")
    assert first["calibration"] != second["calibration"]
    told = {line.split()[1]: line for line in run(*words, "optimizer=sgd,adam").splitlines() if line.startswith("ddp ")}
    assert told["sgd"].endswith("  measured profile")
    assert told["adam"].endswith("  nominal profile")
    assert "profile" not in "".join(run(*TWO).splitlines()[:4])


def test_nodes_of_this_machine_are_described_not_recorded(run):
    lines = run("model=resnet_tiny", "cluster=local", "cluster.nodes=2", "device=cpu", "scheme=ddp").splitlines()
    assert lines[0].startswith("ddp for resnet_tiny on local(nodes=2), 4 ranks")
    assert any(line.startswith("costs: nominal. ring formulas") for line in lines)


def test_gpus_that_are_here_are_not_given_the_times_of_a_cpu(run, monkeypatch, capsys):
    monkeypatch.setattr(machine, "gpus", lambda: ("A", "A"))
    said = refusal(capsys, "simulate", "model=resnet50", "cluster=local", "scheme=ddp")
    assert "nothing is known about time on the cuda devices of cluster=local" in said
    assert "2 ranks" in run("model=resnet50", "cluster=local", "scheme=ddp", "cluster.device=a100").splitlines()[0]
    assert "costs: measured on" in run("model=resnet_tiny", "cluster=local", "scheme=ddp", "device=cpu")


def test_why_explains_later_cases_by_the_first(run):
    out = run(*TWO, "--why")
    assert "per_tensor dgc 0.01 takes " in out
    assert " than ddp: on the critical path " in out
    reasons = [json.loads(line)["why"] for line in run(*TWO, "--why", "--json").splitlines()]
    assert reasons[0] == []
    assert reasons[1][0] in out


def test_what_a_real_run_has_shown_can_be_told(run):
    words = ["model=resnet50", "cluster=16gpu", "scheme=oktopk", "density=0.01", "--json"]
    asked, more, alike = (
        json.loads(run(*words, *told)) for told in ([], ["--achieved-density", "0.03"], ["--build-up", "1"])
    )
    assert more["metrics"]["contributed_bytes"] == pytest.approx(3 * asked["metrics"]["contributed_bytes"], rel=0.01)
    assert more["metrics"]["iteration_s"] > asked["metrics"]["iteration_s"]
    assert alike["metrics"]["sent_bytes"] < asked["metrics"]["sent_bytes"]
    assert (more["known"], more["without_effect"]) == ({"achieved_density": 0.03}, [])
    assert "known" not in asked
    assert (more["plan_digest"], more["calibration"]) == (asked["plan_digest"], asked["calibration"])
    assert "given: --achieved-density 0.03" in run(*words[:-1], "--achieved-density", "0.03").splitlines()


def test_whom_it_does_not_concern_is_said(run, capsys):
    lines = run("model=resnet50", "cluster=16gpu", "scheme=ddp,oktopk", "density=0.01", "--build-up", "2").splitlines()
    assert "--build-up changes nothing about ddp" in lines
    assert not [line for line in lines if line.startswith("--build-up") and "oktopk" in line]
    assert run("model=resnet50", "cluster=16gpu", "scheme=ddp", "--build-up", "16")  # what is assumed anyway
    fixed = ["model=resnet50", "cluster=16gpu", "scheme=fused_all", "--achieved-density", "0.02"]
    dense = ["model=resnet50", "cluster=16gpu", "scheme=ddp", "--build-up", "2"]
    whole = ["model=resnet_tiny", "cluster=local", "world_size=2", "scheme=oktopk", "--build-up", "1.5"]
    for words in (fixed, dense, whole):
        assert f"{words[-2]} changes nothing here" in refusal(capsys, "simulate", *words)


def test_anything_that_differs_can_be_compared(run):
    out = run("model=resnet50", "cluster=16gpu", "scheme=ddp", "cluster.inter.gbps=10,200", "--why")
    assert "ddp 16gpu takes " in out
    assert "less than ddp 16gpu(inter.gbps=10)" in out


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (TWO, ["ddp", "per_tensor dgc 0.01"]),
        (["model=resnet50", "cluster=16gpu", "scheme=ddp", "world_size=1,16"], ["ddp x1", "ddp x16"]),
    ],
)
def test_a_trace_holds_every_case(run, tmp_path, words, names):
    run(*words, "--trace", str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    found = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert found == [f"simulated {name}" for name in names]


def test_a_case_that_several_words_ask_for_is_simulated_once():
    found = resolve_simulations(["model=resnet50", "cluster=16gpu", "scheme=ddp,topk", "density=0.01,0.1"])
    assert [(case.scheme, case.density) for case in found] == [("ddp", None), ("topk", 0.01), ("topk", 0.1)]


def test_a_model_has_its_customary_batch_and_a_workload_its_own(run):
    assert "batch 32 each" in run("model=resnet50", "cluster=16gpu").splitlines()[0]
    assert "batch 64 each" in run("workload=resnet50_imagenet", "cluster=16gpu").splitlines()[0]
    assert "batch 8 each" in run("model=resnet50", "cluster=16gpu", "batch_size=8").splitlines()[0]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["seed=1"], "a simulated step does not depend on seed; it takes scheme"),
        (["scheme=ddp", "--why"], "--why compares, and there is one case"),
        (["cluster=64gpu", "world_size=8"], "cluster=64gpu has 64 devices, so world_size=8 does not fit"),
        (["model=bert_lrge"], "did you mean 'bert_large'; or count your own"),
        (["cluster=64gpu", "scheme=ddp", "density=0.1"], "density=0.1 would have no effect"),
        (["cluster=16gpu", "scheme=oktopk", "--build-up", "17"], "at most the 16 ranks of 16gpu, got 17"),
        (
            ["cluster=emulated_2x10gbit", "cluster.calibration=recorded", "model=resnet_tiny", "scheme=ddp"],
            "measure it with ssfx profile network cluster=emulated_2x10gbit world_size=2, or use",
        ),
        (
            ["cluster=local", "world_size=3", "device=cpu", "cluster.calibration=recorded", "model=resnet_tiny"],
            "nothing is recorded of cluster=local with 3 ranks",
        ),
        (
            ["cluster=64gpu", "model=resnet50", "--trace", "/nowhere/trace.json"],
            "cannot write /nowhere/trace.json: No such",
        ),
    ],
)
def test_what_cannot_be_simulated_is_one_line(words, expected, capsys):
    assert expected in refusal(capsys, "simulate", *words)


def test_neither_torch_nor_matplotlib_is_imported():
    code = (
        "import sys; from ssfx.cli import main; main(sys.argv[1:])\n"
        "heavy = {'torch', 'matplotlib', 'pandas', 'rich', 'psutil', 'scipy'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, "simulate", *ONE], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
