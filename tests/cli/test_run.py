"""`ssfx run` checks, counts, runs what is missing, and draws; with an engine that finishes cases at once."""

import pytest

from ssfx.cli import main
from ssfx.engines import Engine, engines
from ssfx.origin import Origin
from ssfx.results.rows import Row


class Instant(Engine):
    """Finishes every case that the store does not have."""

    name = "torchrun"
    summary = "finishes at once"

    def __init__(self):
        self.ran = []

    def run(self, cases, store, *, progress=True):
        rows = []
        for case in cases:
            if store.row(case) is None:
                self.ran.append(case)
                store.run_dir(case).mkdir(parents=True)
                (store.run_dir(case) / "case.json").write_text(case.to_json())
                speed = {"iteration_s": 0.1, "throughput_samples_per_s": 320.0 * case.world_size}
                store.save(Row(case.run_id, case, speed, Origin("measured", "a test")))
            rows.append(store.row(case))
        return rows


@pytest.fixture
def engine(monkeypatch):
    one = Instant()
    monkeypatch.setitem(engines._entries, "torchrun", one)
    assert engines["torchrun"] is one
    return one


def test_dry_run_lists_and_starts_nothing(engine, capsys):
    assert main(["run", "--dry-run", "scheme=ddp,wfbp"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "measured on this machine: 2 runs, 0 finished, 2 to do"
    assert [line.split()[1:3] for line in lines[-2:]] == [["new", "resnet_tiny/ddp"], ["new", "resnet_tiny/wfbp"]]
    assert engine.ran == []


def test_finished_cases_are_skipped_and_that_is_said(engine, capsys):
    assert main(["run", "scheme=ddp"]) == 0
    assert main(["run", "scheme=ddp,wfbp"]) == 0
    assert "2 runs, 1 finished, 1 to do" in capsys.readouterr().out
    assert [case.scheme for case in engine.ran] == ["ddp", "wfbp"]
    assert main(["run", "scheme=ddp,wfbp"]) == 0
    assert "2 runs, 2 finished, 0 to do" in capsys.readouterr().out
    assert len(engine.ran) == 2


def test_baselines_are_named(engine, capsys):
    assert main(["run", "--dry-run", "scheme=ddp,per_tensor", "density=0.1"]) == 0
    assert "compressor, density and memory apply to per_tensor; dense: ddp" in capsys.readouterr().out


def test_impossible_plans_are_refused_before_anything_starts(engine, shipped, monkeypatch, capsys):
    def refuse(*arguments):
        from ssfx.errors import ConfigError

        raise ConfigError("no such plan")

    monkeypatch.setattr("ssfx.config.plans.make_plan", refuse)
    assert main(["run", "scheme=ddp"]) == 2
    assert capsys.readouterr().err == "ssfx: no such plan\n"
    assert engine.ran == []


def test_status_counts_runs_and_shows_values(engine, capsys):
    assert main(["run", "scheme=ddp,wfbp"]) == 0
    capsys.readouterr()
    assert main(["status"]) == 0
    assert "runs of quickstart: 2 finished, 0 failed, 0 half-finished" in capsys.readouterr().out
