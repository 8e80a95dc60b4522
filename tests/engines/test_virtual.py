"""engine=virtual: the quality of real ranks to the last bit, simulated times, resume, and one line for each refusal."""

import json
import sys

import pytest

from ssfx.advice.cases import simulate_case
from ssfx.core.errors import ConfigError, RequeueError
from ssfx.lab.config.cases import resolve_job
from ssfx.lab.engines import engines
from ssfx.lab.engines.failure import RunsFailed
from ssfx.lab.engines.launch import Warned
from ssfx.lab.worker import virtual

SMALL = ["model=resnet_tiny", "batch_size=4", "warmup_steps=2", "evaluate=true"]
LOCAL = [*SMALL, "cluster=local", "device=cpu", "world_size=2", "steps=6", "evaluate_every=3"]
QUALITY = ("loss", "top1", "top5", "achieved_density", "tensor_missing_rate")


def cases_of(*words: str):
    return resolve_job(words).cases


def run(store, *words: str):
    job = resolve_job(words)
    return engines[job.engine].run(job.cases, store, progress=False)


@pytest.mark.slow
@pytest.mark.torchrun
@pytest.mark.parametrize("scheme", ["oktopk", pytest.param("ddp,per_tensor,acpsgd", marks=pytest.mark.nightly)])
def test_real_ranks_reach_the_same_to_the_last_bit(store, scheme) -> None:
    words = [*LOCAL, f"scheme={scheme}", "density=0.05"]
    real, virtual = run(store, *words, "engine=torchrun"), run(store, *words, "engine=virtual")
    for one, other in zip(real, virtual, strict=True):
        assert {name: one.metrics.get(name) for name in QUALITY} == {name: other.metrics.get(name) for name in QUALITY}
        for name in set(one.curve) - {"time_s", "sent_bytes"}:  # bytes, as real ranks plan again in an observed order
            assert one.curve[name] == other.curve[name], name


@pytest.mark.slow
def test_rounds_train_and_are_timed_as_simulated(store) -> None:
    words = [*LOCAL, "engine=virtual", "scheme=local_sgd,diloco", "scheme.every=2"]
    plain, outer = run(store, *words)
    assert 0 < plain.metrics["loss"] != outer.metrics["loss"] > 0
    for row in (plain, outer):
        assert row.metrics["iteration_s"] == simulate_case(row.case)[1].iteration_s


@pytest.mark.slow
def test_a_row_says_what_was_measured_and_what_simulated(store) -> None:
    words = [*SMALL, "cluster=64gpu", "engine=virtual", "engine.ranks=4", "steps=4", "evaluate_every=2", "device=cpu"]
    words += ["cluster.inter.gbps=1", "scheme=oktopk,auto", "target_metric=top1", "target_value=0.0"]
    for row in run(store, *words):
        _, step = simulate_case(row.case)
        assert (row.kind, row.origin.kind) == ("quality measured, times simulated", "simulated")
        assert row.origin.note.startswith(
            "quality measured on 4 virtual ranks in one process (cpu), times simulated on"
        )
        assert step.plan.digest in row.origin.note
        assert row.manifest["plan_digest"] == step.plan.digest
        assert row.manifest["trained_plan_digest"] == step.plan.digest
        assert row.metrics["iteration_s"] == step.iteration_s
        assert row.case.scheme == "auto" or row.metrics["achieved_density"] < 1
        assert row.metrics["time_to_target_s"] == 2 * step.iteration_s
        assert "time_s" not in row.curve
        assert row.curve["simulated_time_s"] == [2 * step.iteration_s, 4 * step.iteration_s]
        assert row.samples == {}
        assert row.case.world_size == 64
        assert "4 virtual" in row.case.label
    rows = run(store, *words)  # finished: read, not run
    assert [row.manifest["attempt"] for row in rows] == [1, 1]


@pytest.mark.slow
@pytest.mark.nightly
def test_a_run_that_was_stopped_goes_on_and_ends_alike(store, tmp_path, monkeypatch) -> None:
    words = [*LOCAL, "engine=virtual", "scheme=oktopk", "density=0.05", "checkpoint_every=2"]
    began = property(lambda self: any(store.runs.glob("*/attempt-1/rank1.jsonl")), lambda self, value: None)
    monkeypatch.setattr(Warned, "yes", began, raising=False)
    with pytest.raises(RequeueError, match="stopped at the checkpoint after"):
        run(store, *words)
    monkeypatch.undo()
    (resumed,) = run(store, *words)
    assert 0 < resumed.manifest["resumed_from_step"] < 6
    (whole,) = run(type(store)(tmp_path / "other"), *words)
    assert {**resumed.metrics} == {**whole.metrics}
    assert resumed.curve == whole.curve


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["raise", pytest.param("nan", marks=pytest.mark.nightly)])
def test_a_rank_that_fails_is_named(store, fault, monkeypatch) -> None:
    monkeypatch.setenv("SSFX_FAULT", f"{fault}:rank=1,step=4,phase=forward")
    words = [*LOCAL, "engine=virtual", "scheme=oktopk", "density=0.05"]
    if fault == "nan":  # one step is undone on all ranks, as on real ones
        (row,) = run(store, *words)
        assert row.metrics["skipped_steps"] == 1
        assert row.manifest["faults"] == [{"kind": "nan", "rank": 1, "step": 4, "phase": "forward"}]
        return
    with pytest.raises(RunsFailed, match=r"rank 1 raised InjectedFault.* in forward at step 4"):
        run(store, *words)


def test_a_virtual_run_is_another_run_than_a_real_one() -> None:
    words = [*LOCAL, "scheme=ddp"]
    (real,), (virtual,) = cases_of(*words, "engine=torchrun"), cases_of(*words, "engine=virtual")
    assert real.run_id != virtual.run_id
    assert (virtual.virtual, virtual.ranks, virtual.processes, virtual.trained_ranks) == ("cpu", 0, 1, 2)
    assert virtual.calibration
    (fewer,) = cases_of(
        *SMALL, "steps=4", "cluster=64gpu", "device=cpu", "engine=virtual", "engine.ranks=8", "scheme=ddp"
    )
    assert (fewer.world_size, fewer.trained_ranks, fewer.device, fewer.trains_on) == (64, 8, "cuda", "cpu")
    assert type(fewer).from_json(fewer.to_json()) == fewer
    assert json.loads(fewer.to_json())["ranks"] == 8


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["engine=virtual", "sharding=fsdp"], "sharding=fsdp shares a model among real ranks"),
        (["engine=virtual", "trace=true"], "trace=true is about times, which engine=virtual simulates"),
        (["engine=virtual", "time_compute_only=true"], "time_compute_only=true is about times"),
        (["engine=virtual", "engine.ranks=80"], "engine.ranks=80 is more than the 64 ranks of cluster=64gpu"),
        (["engine=virtual", "engine.ranks=6"], "engine.ranks=6 leaves a node of 64gpu half full"),
        (["engine=virtual", "engine.ranks=one"], "engine.ranks is one whole number of at least 2, got one"),
        (["engine.ranks=8"], "engine.ranks=8 is for engine=virtual"),
    ],
)
def test_what_turns_cannot_do_is_refused_in_one_line(words, says) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        resolve_job(["cluster=64gpu", *words])
    assert "\n" not in str(caught.value)


def test_what_fails_outside_of_any_rank_is_told(monkeypatch, capsys) -> None:
    def broken(*_: object) -> bool:
        raise RuntimeError("no such device")

    monkeypatch.setattr(virtual, "read_batch", lambda _: {"jobs": [{}], "train": ""})
    for name in ("die_with_launcher", "watch_kernels"):
        monkeypatch.setattr(virtual, name, lambda *_: None)
    monkeypatch.setattr(virtual, "_run", broken)
    monkeypatch.setattr("os._exit", sys.exit)
    with pytest.raises(SystemExit, match="1"):
        virtual.main("batch.json")
    assert "RuntimeError: no such device" in capsys.readouterr().err
