import json
import os
import threading
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace

import pytest
import torch
from workloads.fakes import WORKLOADS

from ssfx.core.errors import ConfigError, RunError
from ssfx.lab.workloads import models
from ssfx.lab.workloads.profiling import END, SHIPPED, Iteration, Timed, _results, record_profile, since_first
from ssfx.perf_model.shipped_profiles import load_shipped, measured_profile, optimizer_of, shipped_dir
from ssfx.planning.profile import Profile


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_recorded_profile_lists_every_tensor_in_ready_order(name: str) -> None:
    threads = torch.get_num_threads()
    profile = record_profile(name, WORKLOADS[name], 2, "cpu", iterations=3, warmup=1)
    assert torch.get_num_threads() == threads
    shapes = {n: tuple(p.shape) for n, p in models[name].build().named_parameters()}
    assert {spec.name: spec.shape for spec in profile.tensors} == shapes
    assert (profile.model, profile.device, profile.batch_size, profile.origin.kind) == (name, "cpu", 2, "measured")
    assert profile.forward_s > 0
    assert profile.backward_s > 0
    assert profile.step_s > 0
    assert profile.other_s > 0
    assert profile.ranks == 1
    assert Profile.from_json(profile.to_json()) == profile
    names = [spec.name for spec in profile.tensors]
    first, last = {
        "resnet_tiny": ("head.weight", "conv.weight"),
        "lstm_tiny": ("head.weight", "embedding.weight"),
        "gpt2_tiny": ("transformer.ln_f.weight", "transformer.wte.weight"),
    }[name]
    assert names.index(first) <= 1
    assert names.index(last) >= len(names) - 2


@pytest.mark.nightly
@pytest.mark.slow
def test_ranks_that_share_the_machine_are_recorded_as_such() -> None:
    profile = record_profile("resnet_tiny", "digits", 2, "cpu", iterations=2, warmup=1, ranks=2, optimizer="adamw")
    assert profile.ranks == 2
    assert "2 processes of one thread each" in profile.origin.note
    assert "step: adamw" in profile.origin.note
    assert profile.optimizer == optimizer_of(profile) == "adamw"
    assert min(profile.forward_s, profile.backward_s, profile.step_s, profile.other_s) > 0
    assert "GLIBC_TUNABLES" not in os.environ


def test_whoever_shares_a_core_begins_with_the_first_rank_and_steps_for_as_long_as_it_was_kept_waiting() -> None:
    ranks = [Iteration(at_s, 0.002, 0.001, 0.05, {END: 0.1}) for at_s in (10.003, 10.0, 10.001)]
    found = since_first(ranks)
    assert [one.began_s for one in found] == [10.0] * 3
    assert [one.step_s for one in found] == pytest.approx([0.005, 0.002, 0.003])
    assert [one.whole_s for one in found] == pytest.approx([0.156, 0.153, 0.154])


@pytest.mark.slow
@pytest.mark.nightly
def test_what_one_rank_refuses_is_told_and_the_others_end() -> None:
    with pytest.raises(ConfigError, match="batch_size=5000 on 2 ranks needs 10000 training samples"):
        record_profile("resnet_tiny", "digits", 5000, "cpu", iterations=1, warmup=0, ranks=2)


def _failed(error: BaseException) -> Future[Timed]:
    future: Future[Timed] = Future()
    future.set_exception(error)
    return future


def test_the_rank_that_failed_first_is_the_one_that_is_told() -> None:
    broken = _failed(threading.BrokenBarrierError())
    with pytest.raises(ValueError, match="mine"):
        _results([broken, _failed(ValueError("mine")), broken])
    with pytest.raises(RunError, match="one of 2 profiling processes died"):
        _results([_failed(BrokenProcessPool()), broken])


def test_profiling_refuses_what_cannot_be_measured() -> None:
    with pytest.raises(ConfigError, match="use dataset=digits"):
        record_profile("resnet_tiny", "stdlib_text", 2, "cpu")
    with pytest.raises(ConfigError, match="did you mean 'sgd'"):
        record_profile("resnet_tiny", "digits", 2, "cpu", optimizer="sgb")


def test_gpus_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ConfigError, match="ranks=2 needs as many GPUs and torch finds 1"):
        record_profile("resnet_tiny", "digits", 2, "cuda", ranks=2)


def test_every_model_has_a_shipped_profile() -> None:
    for name in sorted({*models.names()} - {"mask_rcnn"}):  # whose operators cannot be counted without values
        assert load_shipped(name).origin.kind == ("measured" if name in SHIPPED else "nominal")
    for name in SHIPPED:
        profile = measured_profile(name)
        assert profile is not None
        assert (profile.device, profile.batch_size) == ("cpu", models[name].batch_size)
        assert profile.origin.hardware
        assert "torch" in profile.origin.versions


def test_a_profile_written_before_a_field_existed_is_read() -> None:
    raw = json.loads(load_shipped("bert_large").to_json())
    for field in ("ranks", "step_s", "other_s", "optimizer"):
        raw.pop(field)
    profile = Profile.from_json(json.dumps(raw))
    assert (profile.ranks, profile.step_s, profile.other_s) == (1, 0.0, 0.0)
    assert (profile.optimizer, optimizer_of(profile)) == ("", "adamw")


@pytest.mark.parametrize("wrong", [{"step_s": -1.0}, {"other_s": -1.0}, {"ranks": 0}])
def test_impossible_profiles_are_refused(wrong: dict[str, float]) -> None:
    raw = json.loads(load_shipped("lstm_tiny").to_json())
    with pytest.raises(ValueError, match=r"times must be finite and not negative|at least one rank"):
        Profile.from_json(json.dumps(raw | wrong))


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"model": "a\nb"}, "is no name"),
        ({"optimizer": "\x1b[2J"}, "is no name"),
        ({"device": "cpu\r"}, "is no name"),
    ],
)
def test_a_file_of_no_batch_or_of_names_that_no_line_shows_is_refused(wrong: dict[str, object], why: str) -> None:
    raw = json.loads(load_shipped("lstm_tiny").to_json())
    with pytest.raises(ValueError, match=why):
        Profile.from_json(json.dumps(raw | wrong))


def test_a_profile_that_does_not_know_its_batch_says_nothing_of_it() -> None:
    raw = json.loads(replace(load_shipped("lstm_tiny"), batch_size=0).to_json())
    assert "batch_size" not in raw
    assert Profile.from_json(json.dumps(raw)).batch_size == 0
    raw["tensors"][0]["name"] += "\n"
    with pytest.raises(ValueError, match="is no name"):
        Profile.from_json(json.dumps(raw))


def test_shipped_profiles_name_no_machine() -> None:
    for path in shipped_dir().glob("*.json"):
        assert path.stat().st_size < 48 * 1024
        strings = json.dumps(json.loads(path.read_text())["origin"])
        assert "/" not in strings
