"""`ssfx plan` plans for the devices of the cluster."""

import pytest

from ssfx.config.plans import plan_of, resolve_plan
from ssfx.config.simulations import resolve_simulations
from ssfx.perf_model.target import target_of


def profile_of(words):
    return plan_of(resolve_plan(words.split()))[1]


def test_the_profile_is_of_the_clusters_devices():
    slow, fast = (profile_of(f"model=resnet50 scheme=ddp cluster={name}") for name in ("acpsgd_10gbe", "64gpu"))
    assert (slow.device, fast.device) == ("rtx2080ti", "a100")
    assert slow.backward_s > fast.backward_s
    assert profile_of("model=resnet_tiny scheme=ddp cluster=64gpu").device == "a100"
    assert profile_of("model=resnet_tiny scheme=ddp cluster=local device=cpu").origin.kind == "measured"


def test_gpus_that_are_here_but_have_no_data_sheet_are_planned_for_as_others(monkeypatch):
    monkeypatch.setattr("ssfx.core.machine.gpus", lambda: ["Invented GPU"] * 2)
    assert profile_of("model=resnet50 scheme=ddp cluster=local device=cuda").device == "a100"


@pytest.mark.parametrize("cluster", ["local", "64gpu"])
def test_a_plan_lists_every_tensor_of_the_model_once(cluster):
    plan, profile, _ = plan_of(resolve_plan(["model=lstm_tiny", f"cluster={cluster}"]))
    assert [spec.name for spec in plan.tensors] == [spec.name for spec in profile.tensors]
    assert len(set(plan.by_name)) == len(profile.tensors)


def test_a_plan_is_made_from_the_profile_that_is_simulated():
    for more in ([], ["optimizer=sgd"], ["batch_size=8"], ["iteration_ms=500"], ["precision=bf16"]):
        words = ["model=bert_large", "cluster=64gpu", "scheme=auto", *more]
        plan, profile, _ = plan_of(resolve_plan(words))
        assert profile == target_of(resolve_simulations(words)[0]).profile
        assert f"transformers with {'sgd' if 'optimizer=sgd' in words else 'adamw'}" in dict(plan.notes)["budget"]
