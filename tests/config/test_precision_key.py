"""`precision=`: what forward and backward compute in, in plans, simulations, advice and simulated experiments."""

import json
from dataclasses import replace

import pytest
from refusals import output

from ssfx.advice.cases import simulate_case
from ssfx.cli import main
from ssfx.config.advice_question import advise_on, resolve_setting
from ssfx.config.plans import plan_of, resolve_plan
from ssfx.config.simulations import resolve_simulations
from ssfx.core.errors import ConfigError
from ssfx.lab.config.cases import resolve_job
from ssfx.perf_model.roofline import analytic_profile

WORDS = ["model=resnet50", "cluster=16gpu"]
MEASURED = r"measured in the precision of its script; drop precision=bf16$"
NOT_SAID = r"does not say in which precision it was made; make it again with ssfx profile .* precision=bf16$"


def test_every_command_rests_on_the_profile_of_that_precision():
    expected = replace(analytic_profile("resnet50", "a100", 32, "bf16"), optimizer="sgd")
    (case,) = resolve_simulations([*WORDS, "scheme=ddp", "precision=bf16"])
    (plain,) = resolve_simulations([*WORDS, "scheme=ddp"])
    target, step = simulate_case(case)
    assert case.precision == "bf16"
    assert case.run_id != plain.run_id
    assert target.profile == expected
    assert step.iteration_s < simulate_case(plain)[1].iteration_s
    # Under autocast gradients and messages stay float32.
    assert step.metrics(1)["contributed_bytes"] == simulate_case(plain)[1].metrics(1)["contributed_bytes"]
    setting = resolve_setting([*WORDS, "precision=bf16"])
    assert (setting.profile, setting.precision) == (expected, "bf16")
    assert plan_of(resolve_plan([*WORDS, "scheme=omgs", "precision=bf16"]))[1] == expected


def test_an_experiment_is_simulated_in_it():
    job = resolve_job(
        ["experiment=throughput", "cluster=16gpu", "scheme=ddp", "workload=bert_large_squad", "precision=fp16"]
    )
    assert {case.precision for case in job.cases} == {"fp16"}
    assert all("precision=fp16" in target.profile.origin.note for target in job.targets)


def test_a_measured_iteration_overrides_it():
    words = [*WORDS, "precision=bf16", "iteration_ms=100"]
    assert resolve_setting(words).profile.alone_s() == pytest.approx(0.1)
    assert plan_of(resolve_plan([*words, "scheme=ddp"]))[1].alone_s() == pytest.approx(0.1)


@pytest.mark.parametrize("resolve", [resolve_simulations, resolve_setting, lambda words: plan_of(resolve_plan(words))])
def test_a_device_without_tensor_cores_and_a_saved_profile_refuse(resolve, tmp_path):
    with pytest.raises(ConfigError, match=r"device p100 has not; use precision=fp32$"):
        resolve([*WORDS, "cluster.device=p100", "precision=fp16"])
    saved, counted = tmp_path / "mine.json", analytic_profile("resnet50", "a100", 32)
    for profile, why in (
        (replace(counted, origin=replace(counted.origin, kind="measured")), MEASURED),
        (counted, NOT_SAID),
    ):
        saved.write_text(profile.to_json())
        with pytest.raises(ConfigError, match=why):
            resolve([f"profile={saved}", "cluster=16gpu", "precision=bf16"])


def test_advice_on_a_profile_has_the_precision_of_that_profile():
    counted = analytic_profile("resnet50", "a100", 32)
    for profile, why in (
        (replace(counted, origin=replace(counted.origin, kind="measured")), MEASURED),
        (counted, NOT_SAID),
    ):
        with pytest.raises(ConfigError, match=why):
            advise_on(profile, "16gpu", precision="bf16")


def test_the_commands_say_it(capsys):
    out = output(capsys, "simulate", *WORDS, "scheme=ddp", "precision=bf16")
    assert out.startswith("ddp for resnet50 on 16gpu, 16 ranks, batch 32 each in bf16, dense\n")
    assert "activations have 2 bytes; weights, gradients, messages" in out
    assert main(["simulate", *WORDS, "scheme=ddp", "precision=fp32,tf32", "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["precision"] for one in found] == ["fp32", "tf32"]
    assert found[0]["metrics"]["iteration_s"] > found[1]["metrics"]["iteration_s"]
    out = output(capsys, "advise", "model=resnet_tiny", "cluster=16gpu", "precision=bf16")
    assert "batch 32 each in bf16, density 0.01 (simulated" in " ".join(out.splitlines()[:2])
    assert "profile: nominal, a100, batch 32, bf16. " in output(capsys, "plan", *WORDS, "scheme=ddp", "precision=bf16")
