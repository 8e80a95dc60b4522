"""`ssfx run` checks, counts, runs what is missing, and draws; with an engine that finishes cases at once."""

import csv
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from refusals import output, refusal
from results.test_wandb_mirror import FakeRun

from ssfx.cli import main
from ssfx.core import machine
from ssfx.core.errors import RunError
from ssfx.core.origin import Origin
from ssfx.core.rows import Row
from ssfx.lab.engines import Engine, engines
from ssfx.lab.engines.failure import RunsFailed


class Instant(Engine):
    """Finishes every case that the store does not have."""

    name = "torchrun"
    summary = "finishes at once"

    def __init__(self):
        self.ran = []
        self.fails = None
        self.fail_alone = ()

    def run(self, cases, store, *, progress=True, stall_timeout_s=None, jobs=1, fail_fast=False):
        self.stall_timeout_s, self.jobs, self.fail_fast = stall_timeout_s, jobs, fail_fast
        rows, failures = [], {}
        for case in cases:
            if case.scheme == self.fails:
                raise RunError("rank 1 died")
            if case.scheme in self.fail_alone:
                (store.run_dir(case) / "attempt-1").mkdir(parents=True)
                (store.run_dir(case) / "attempt-1" / "failure.json").write_text("{}")
                failures[case.run_id] = f"run {case.run_id} ({case.label}) failed: rank 1 died"
                continue
            if store.row(case) is None:
                self.ran.append(case)
                store.run_dir(case).mkdir(parents=True, exist_ok=True)
                (store.run_dir(case) / "case.json").write_text(case.to_json())
                speed = {"iteration_s": 0.1, "throughput_samples_per_s": 320.0 * case.world_size}
                store.save(Row(case.run_id, case, speed, Origin("measured", "a test")))
            rows.append(store.row(case))
        if failures:
            raise RunsFailed(failures)
        return rows


@pytest.fixture
def engine(monkeypatch):
    one = Instant()
    assert "torchrun" in engines  # which loads them
    monkeypatch.setitem(engines._entries, "torchrun", one)
    return one


def test_dry_run_lists_and_starts_nothing(engine, capsys):
    lines = output(capsys, "run", "--dry-run", "scheme=ddp,wfbp").splitlines()
    assert lines[0] == "measured on this machine: 2 runs, 0 finished, 2 to do"
    assert [line.split()[1:3] for line in lines[-2:]] == [["new", "resnet_tiny/ddp"], ["new", "resnet_tiny/wfbp"]]
    assert engine.ran == []


def test_a_model_that_cannot_fit_into_the_gpus_here_is_said_before_a_real_run(engine, monkeypatch, capsys):
    monkeypatch.setattr(machine, "gpus", lambda: ("NVIDIA GeForce RTX 2080 Ti",) * 2)
    words = ["run", "--dry-run", "engine=torchrun", "device=cuda", "dataset=synthetic", "scheme=ddp,wfbp"]
    (line,) = [line for line in output(capsys, *words, "model=gpt2_xl").splitlines() if line.startswith("beware: ")]
    assert line.startswith("beware: gpt2_xl on rtx2080ti does not fit: ")
    assert " of 11 GB at batch " in line
    assert "beware" not in output(capsys, *words, "model=resnet50", "batch_size=2")


def test_finished_cases_are_skipped_and_that_is_said(engine, capsys):
    assert main(["run", "scheme=ddp"]) == 0
    assert "2 runs, 1 finished, 1 to do" in output(capsys, "run", "scheme=ddp,wfbp")
    assert [case.scheme for case in engine.ran] == ["ddp", "wfbp"]
    assert "2 runs, 2 finished, 0 to do" in output(capsys, "run", "scheme=ddp,wfbp")
    assert len(engine.ran) == 2


def test_what_an_own_data_set_reads_is_watched_where_it_says_so(engine, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "table.csv").write_text("1\n")
    text = "def make(train):\n    raise NotImplementedError\n"
    words = ["run", "scheme=ddp", "dataset=mine.py:make"]
    for said, finished in (("", 1), ("make.files = ['table.csv']\n", 0)):
        (tmp_path / "mine.py").write_text(text + said)
        assert main(words) == 0
        with (tmp_path / "table.csv").open("a") as table:
            table.write("2\n")
        capsys.readouterr()
        out = output(capsys, *words, "--dry-run")
        assert f"1 runs, {finished} finished" in out
        assert ("finished runs stay when what mine.py reads changes" in out) == bool(finished)


def test_a_cluster_that_is_not_here_is_simulated_and_that_is_said_first(capsys):
    words = ["run", "cluster=16gpu,32gpu", "scheme=ddp,oktopk", "workload=text_lstm"]
    lines = output(capsys, *words, "--dry-run").splitlines()
    assert lines[0] == "simulated (nominal costs, nominal profiles): 4 runs, 0 finished, 4 to do"
    assert lines[1] == "experiment=quickstart engine=simulate: one step in virtual time, nothing is trained"
    assert [line.partition(":")[0] for line in lines[2:4]] == ["16gpu", "32gpu"]
    assert main(words) == 0
    captured = capsys.readouterr()
    assert captured.err.startswith("simulated 4 runs in ")
    assert main(words) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("simulated (nominal costs, nominal profiles): 4 runs, 4 finished, 0 to do\n")
    assert captured.err == ""


def test_virtual_ranks_of_unknown_times_are_refused_before_any_starts(monkeypatch, capsys):
    started = []
    monkeypatch.setattr(engines["virtual"], "run", lambda cases, *_, **__: started.append(cases))
    said = refusal(
        capsys, "run", "engine=virtual", "cluster=emulated_4x1gbit", "model=resnet_tiny", "scheme=ddp,ddp_quantized"
    )
    assert "no times for compressor fp8 on emulated_4x1gbit" in said
    assert started == []


def test_simulated_rows_are_drawn(tmp_path, capsys):
    words = "run experiment=throughput cluster=16gpu scheme=ddp,ssfusion_oi workload=resnet152_imagenet"
    out = output(capsys, *words.split())
    (image,) = [path for path in out.split() if path.endswith("ssfusion.fig11.png")]
    path = Path(image).with_suffix(".csv")
    lines = [line for line in csv.DictReader(path.read_text().splitlines()) if line["cluster"] == "16 GPUs"]
    drawn = {(line["scheme"], line["origin"], line["extrapolated"]) for line in lines}
    assert {(scheme, "simulated (nominal)", "no") for scheme in ("ddp", "ssfusion_oi")} <= drawn


def test_a_simulation_that_cannot_be_planned_is_refused_before_any_other(capsys):
    words = ["run", "cluster=16gpu", "scheme=ddp,oktopk", "workload=bloom_3b"]
    for flag in ([], ["--dry-run"]):
        assert "indices have 32 bits" in refusal(capsys, *words, *flag)
    assert main(["run", "cluster=16gpu", "scheme=ddp", "workload=bloom_3b", "--dry-run"]) == 0
    assert "1 runs, 0 finished, 1 to do" in capsys.readouterr().out


def test_baselines_are_named(engine, capsys):
    assert main(["run", "--dry-run", "scheme=ddp,per_tensor", "density=0.1"]) == 0
    assert "compressor, density and memory apply to per_tensor; dense: ddp" in capsys.readouterr().out


def test_a_density_in_a_sweep_of_compressors_applies_where_it_can(engine, capsys):
    out = output(capsys, "run", "--dry-run", "scheme=per_tensor", "compressor=topk,fp16", "density=0.1,0.01")
    assert "measured on this machine: 3 runs" in out
    assert "density applies to topk; every element is sent: fp16" in out
    assert [line.split()[2] for line in out.splitlines()[-3:]] == [
        "resnet_tiny/per_tensor/topk@0.1",
        "resnet_tiny/per_tensor/topk@0.01",
        "resnet_tiny/per_tensor/fp16",
    ]


def test_the_engine_learns_how_long_to_wait(engine):
    assert main(["run", "scheme=ddp"]) == 0
    assert engine.stall_timeout_s == 90
    assert main(["run", "scheme=ddp", "stall_timeout_s=600", "seed=1"]) == 0
    assert engine.stall_timeout_s == 600
    assert main(["run", "scheme=ddp", "stall_timeout_s=300"]) == 0
    assert len(engine.ran) == 2, "how long to wait is no part of a case"


@pytest.fixture
def mirrored(monkeypatch):
    """A stand-in for the wandb package; the list of what it was given."""
    given = []

    def init(**settings):
        given.append(settings)
        return FakeRun()

    module = ModuleType("wandb")
    module.init, module.Settings = init, lambda **settings: SimpleNamespace(**settings)
    monkeypatch.setitem(sys.modules, "wandb", module)
    return given


def test_new_rows_are_mirrored_and_old_ones_are_not(engine, mirrored):
    assert main(["run", "scheme=ddp"]) == 0
    assert mirrored == []
    assert main(["run", "scheme=ddp,wfbp", "wandb=offline"]) == 0
    assert [(one["id"], one["mode"]) for one in mirrored] == [(engine.ran[1].run_id, "offline")]
    assert main(["run", "scheme=ddp,wfbp", "wandb=offline"]) == 0
    assert len(mirrored) == 1


def test_rows_finished_before_a_failure_are_mirrored(engine, mirrored, capsys):
    engine.fails = "wfbp"
    assert main(["run", "scheme=ddp,wfbp", "wandb=online"]) == 1
    assert capsys.readouterr().err == "ssfx: rank 1 died\n"
    assert [one["config"]["scheme"] for one in mirrored] == ["ddp"]


def test_impossible_plans_are_refused_before_anything_starts(engine, shipped, monkeypatch, capsys):
    def refuse(*arguments):
        from ssfx.core.errors import ConfigError

        raise ConfigError("no such plan")

    monkeypatch.setattr("ssfx.lab.config.plans.make_plan", refuse)
    assert refusal(capsys, "run", "scheme=ddp") == "ssfx: no such plan\n"
    assert engine.ran == []


def test_status_counts_runs_and_shows_values(engine, capsys):
    assert main(["run", "scheme=ddp,wfbp"]) == 0
    capsys.readouterr()
    assert "runs of quickstart: 2 finished, 0 failed, 0 half-finished" in output(capsys, "status")


def test_after_a_failure_the_other_runs_are_shown_and_the_failure_is_said_last(engine, capsys):
    engine.fails = "wfbp"
    assert main(["run", "scheme=ddp,wfbp"]) == 1
    out, err = capsys.readouterr()
    assert "resnet_tiny / digits, 2 ranks" in out
    assert "100.0" in out
    assert err.splitlines()[-1] == "ssfx: rank 1 died"


def test_failed_runs_are_listed_with_their_reasons_and_repeated_alone(engine, capsys):
    engine.fail_alone = ("wfbp", "ssgd")
    words = ["run", "scheme=ddp,wfbp,ssgd"]
    assert main(words) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "2 of 3 runs failed:"
    assert [line.partition(" (")[2] for line in lines[1:3]] == [
        "resnet_tiny/wfbp x2) failed: rank 1 died",
        "resnet_tiny/ssgd x2) failed: rank 1 died",
    ]
    assert "--only-failed" in lines[3]
    assert lines[-1].startswith("ssfx: run ")
    engine.fail_alone = ()
    again = [*words, "seed=0,1", "--only-failed"]
    assert "6 runs, 1 finished, 2 failed, 2 to do" in output(capsys, *again, "--dry-run")
    assert main(again) == 0
    assert [(case.scheme, case.seed) for case in engine.ran] == [("ddp", 0), ("wfbp", 0), ("ssgd", 0)]
    capsys.readouterr()
    assert "6 runs, 3 finished, 0 to do" in output(capsys, *again)
    assert len(engine.ran) == 3


def test_the_engine_is_told_to_end_at_the_first_failure_and_how_many_run_at_a_time(engine, monkeypatch):
    assert main(["run", "scheme=ddp"]) == 0
    assert (engine.jobs, engine.fail_fast) == (1, False)
    monkeypatch.setattr("ssfx.core.machine.own_cores", lambda: list(range(8)))
    assert main(["run", "scheme=wfbp", "jobs=3", "--fail-fast"]) == 0
    assert (engine.jobs, engine.fail_fast) == (3, True)


@pytest.mark.parametrize("flag", ["--dry-run", "--print"])
def test_what_only_lists_or_prints_searches_no_plan(monkeypatch, capsys, flag):
    """Searching the plans of all models of an experiment takes minutes; they are searched when runs start."""
    from ssfx.lab.config import plans

    planned = []
    real = plans.make_plan
    monkeypatch.setattr(plans, "make_plan", lambda scheme, *rest: planned.append(scheme) or real(scheme, *rest))
    words = ["run", "experiment=throughput", "engine=slurm", "cluster=16gpu", "scheme=ddp,ssfusion_oi,mergecomp"]
    assert "12 runs" in output(capsys, *words, flag)
    assert set(planned) == {"ddp"}
