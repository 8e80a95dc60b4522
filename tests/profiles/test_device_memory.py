"""Device memory of a plan: every use by hand, whether it fits, and what would."""

from dataclasses import replace

import pytest
from refusals import output

from ssfx.advice.cases import simulate_case
from ssfx.cli import main
from ssfx.config.simulations import resolve_simulations
from ssfx.core.errors import ConfigError
from ssfx.core.numbers import rounded
from ssfx.perf_model.operator_counts import model_work
from ssfx.simulator.pricing import device_memory as memory_module
from ssfx.simulator.pricing.device_memory import GB, device_memory


def of(*words):
    (case,) = resolve_simulations(["model=gpt2_xl", "cluster=64gpu", *words])
    target, step = simulate_case(case)
    return device_memory(
        target.profile,
        step.plan,
        target.cluster.device,
        optimizer=case.optimizer,
        precision=case.precision,
        batch_size=case.batch_size,
    )


def test_every_use_by_hand():
    work = model_work("gpt2_xl")
    weights = 4 * work.numel
    dense = of("scheme=ddp", "batch_size=2", "optimizer=adamw")
    sample = work.activation_bytes - work.attention_bytes
    assert (dense.weights, dense.gradients, dense.optimizer_state) == (weights, weights, 2 * weights)
    assert (dense.residuals, dense.messages, dense.sample) == (0, weights, sample)
    assert dense.total == 5 * weights + 2 * sample
    topk = of("scheme=topk", "batch_size=2", "density=0.01")
    assert topk.residuals == 2 * weights  # committed and of the step under way
    payload = 8 * round(0.01 * work.numel)
    assert topk.messages == pytest.approx(65 * payload, rel=0.01)  # its own and that of 64 ranks
    half = of("scheme=ddp", "batch_size=2", "precision=bf16")
    assert half.weights == weights + weights // 2
    assert half.sample == sample // 2


def test_what_does_not_fit_names_the_largest_batch_that_does():
    needed = of("scheme=ddp", "batch_size=8")
    assert not needed.fits
    assert needed.text.startswith("does not fit: 97.5 of 80 GB at batch 8 (weights 5.8,")
    assert needed.text.endswith("; batch_size=5 would")
    assert replace(needed, batch_size=5).fits
    assert not replace(needed, batch_size=6).fits
    assert replace(needed, batch_size=5).text.startswith("fits: 71.8 of 80 GB (")


def test_large_numbers_are_written_as_people_do():
    needed = of("scheme=ddp", "batch_size=8")
    assert "does not fit: 85,600 of 80 GB at batch 9999" in replace(needed, batch_size=9999).text
    assert [rounded(value, 4) for value in (37912.3, 9999.6, 975.53, 0.00123)] == [
        "37,910",
        "10,000",
        "975.5",
        "0.00123",
    ]


def test_what_fits_at_no_batch_names_the_devices_to_share_the_state():
    needed = replace(of("scheme=ddp", "batch_size=1"), device_bytes=16 * GB)
    state = needed.weights + needed.gradients + needed.optimizer_state
    rest = needed.messages + needed.sample
    assert needed.largest_batch == 0
    assert needed.shards == 15
    assert state / 15 + rest <= 16 * GB < state / 14 + rest
    assert "sharded over 15 devices (FSDP, ZeRO)" in needed.text
    assert replace(needed, device_bytes=1 * GB).text.endswith("nothing here would make it fit")


def test_a_host_has_none_and_a_profile_without_a_counted_model_no_activations():
    (case,) = resolve_simulations(["model=resnet50", "cluster=64gpu", "scheme=ddp"])
    target, step = simulate_case(case)
    assert device_memory(target.profile, step.plan, "cpu") is None
    assert device_memory(target.profile, step.plan, "cuda") is None
    other = device_memory(replace(target.profile, model="mine"), step.plan, "a100", batch_size=4)
    assert other.sample is None
    assert other.text.endswith("activations unknown), so whether it fits is not known")


@pytest.mark.parametrize("verb", ["plan", "simulate", "advise"])
def test_what_does_not_fit_has_no_time(verb, capsys):
    words = [] if verb == "advise" else ["scheme=ddp"]
    code = main([verb, "model=bloom_3b", "cluster=ssfusion_local", *words])
    out, err = capsys.readouterr()
    assert code == (2 if verb == "advise" else 0)
    said = " ".join((out + err).split())
    assert "does not fit: 74.8 of 32 GB at batch 2" in said
    assert "sharded over 4 devices" in said
    assert "per iteration" not in said
    assert "predicted F" not in said


def test_of_several_cases_those_that_fit_have_times(capsys):
    words = ["model=gpt2_xl", "cluster=64gpu", "batch_size=6", "density=0.01", "scheme=topk,ssfusion_oi"]
    out = output(capsys, "simulate", *words)
    rows = {line.split()[0]: line for line in out.splitlines() if line.startswith(("topk", "ssfusion_oi"))}
    assert any(line.startswith("topk") and line.endswith("does not fit") for line in out.splitlines())
    assert "memory: fits: 79 of 80 GB" in out
    assert rows


def test_a_model_that_cannot_be_counted_is_tried_once(tmp_path, monkeypatch):
    tries = []

    def refused(model):
        tries.append(model)
        raise ConfigError("no batch")

    monkeypatch.setattr(memory_module, "model_work", refused)
    monkeypatch.setattr(memory_module, "is_counted", lambda model: True)
    (case,) = resolve_simulations(["model=gpt2_xl", "cluster=64gpu", "scheme=ddp"])
    target, step = simulate_case(case)
    own = replace(target.profile, model=str(tmp_path / "mine.py:model"))
    first, second = (memory_module.device_memory(own, step.plan, "a100") for _ in range(2))
    assert first == second
    assert first.sample is None
    assert len(tries) == 1
