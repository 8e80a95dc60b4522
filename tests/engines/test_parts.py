"""Heartbeats, faults, step logs, the report and the engine's registry; no process is started."""

import io
import subprocess
import sys
import time

import pytest
from engines.helpers import make_case
from rich.console import Console

from ssfx.core.errors import ConfigError, RunError
from ssfx.core.origin import Origin
from ssfx.core.rows import Row
from ssfx.lab.engines import engines
from ssfx.lab.engines.job import Job
from ssfx.lab.engines.progress import Report
from ssfx.lab.engines.torchrun import Torchrun
from ssfx.lab.results.store import RunLock, Store
from ssfx.lab.worker.faults import VARIABLE, Fault, InjectedFault, Injector, fired
from ssfx.lab.worker.heartbeat import SIZE, Heartbeat, heartbeat_path, read_beat


def test_a_beat_is_readable_and_never_grows_the_file(tmp_path):
    assert read_beat(tmp_path, 0) is None
    heart = Heartbeat(tmp_path, 0)
    heart.beat(17, "backward", "OSError: " + "x" * 2000 + "\nsecond line")
    beat = read_beat(tmp_path, 0)
    assert (beat.step, beat.phase) == (17, "backward")
    assert beat.error.startswith("OSError: xxx")
    assert heartbeat_path(tmp_path, 0).stat().st_size == SIZE
    heart.beat(18, "step")
    assert (read_beat(tmp_path, 0).step, read_beat(tmp_path, 0).error) == (18, "")


def test_faults_are_parsed_and_typing_errors_are_named():
    assert Fault.parse("kill:rank=1,step=5,phase=backward") == Fault("kill", 1, 5, "backward")
    assert Fault.parse("slow") == Fault("slow")
    with pytest.raises(ConfigError, match="did you mean 'kill'"):
        Fault.parse("kil:rank=1")
    with pytest.raises(ConfigError, match="choose one of: phase, rank"):
        Fault.parse("kill:fase=step")
    with pytest.raises(ConfigError, match="step must be a number"):
        Fault.parse("kill:step=x")
    with pytest.raises(ConfigError, match="did you mean 'backward'"):
        Fault.parse("kill:phase=backwards")
    with pytest.raises(ConfigError, match="nan happens in phase forward"):
        Fault.parse("nan:phase=step")


def test_a_fault_hits_one_rank_one_step_one_run_and_only_once(tmp_path, monkeypatch):
    run_dir = tmp_path / "abc123"
    attempts = [run_dir / f"attempt-{n}" for n in (1, 2)]
    for attempt in attempts:
        attempt.mkdir(parents=True)
    monkeypatch.setenv(VARIABLE, "raise:rank=1,step=2,phase=step,run=abc")
    other_run = tmp_path / "def"
    for bystander in (Injector(0, run_dir, attempts[0]), Injector(1, other_run, attempts[0])):
        bystander(2, "step")
    injector = Injector(1, run_dir, attempts[0])
    injector(1, "step")
    injector(2, "forward")
    with pytest.raises(InjectedFault):
        injector(2, "step")
    injector(2, "step")
    assert fired(run_dir) == [{"kind": "raise", "rank": 1, "step": 2, "phase": "step"}]
    Injector(1, run_dir, attempts[1])(2, "step")  # a later attempt knows that it has happened


def test_a_slow_rank_sleeps(tmp_path, monkeypatch):
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setenv(VARIABLE, "slow")
    Injector(0, tmp_path / "run", tmp_path)(0, "forward")
    assert slept == [1.0]


def test_without_the_variable_nothing_happens(tmp_path, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    Injector(0, tmp_path, tmp_path)(0, "forward")
    assert list(tmp_path.iterdir()) == []


def test_step_records_are_read_once_and_a_line_under_way_later(tmp_path):
    claim = RunLock.take(tmp_path / "run")
    job = Job(make_case(), claim, 1)
    assert job.new_records() == []
    job.attempt_dir.mkdir()
    log = job.attempt_dir / "rank0.jsonl"
    log.write_text('{"step": 0}\n{"step"')
    assert job.new_records() == [{"step": 0}]
    assert job.new_records() == []
    log.write_text('{"step": 0}\n{"step": 1}\n')
    assert job.new_records() == [{"step": 1}]
    log.write_text('{"step": 0}\n{"step": 1}\nnonsense\n')
    with pytest.raises(RunError, match="not JSON"):
        job.new_records()
    claim.release()


def row_of(case, *notes) -> Row:
    return Row(case.run_id, case, {"iteration_s": 0.25}, Origin("measured"), {"notes": list(notes)})


def test_the_report_is_plain_lines_in_a_file_and_silent_on_request():
    case = make_case()
    text = io.StringIO()
    with Report([case, make_case(seed=1)], True, Console(file=text, soft_wrap=True)) as report:
        report.note("torchrun: 2 case(s)")
        report.step(case, {"step": 0, "iteration_s": 0.25})
        report.known(row_of(case))
        report.finished(row_of(make_case(seed=1)))
    assert text.getvalue().splitlines() == [
        "torchrun: 2 case(s)",
        f"[1/2] {case.run_id} fake/ddp x2: already finished, nothing to do, 0.25 s/step",
        f"[2/2] {make_case(seed=1).run_id} fake/ddp x2: finished, 0.25 s/step",
    ]


def test_a_log_file_says_every_minute_how_far_a_run_is(monkeypatch):
    seconds = iter((0.0, 59.0, 60.0, 60.0, 61.0, 119.0, 121.0, 121.0))  # each line asks twice
    monkeypatch.setattr("ssfx.lab.engines.progress.time.monotonic", lambda: next(seconds))
    case, text = make_case(), io.StringIO()
    with Report([case], True, Console(file=text, soft_wrap=True)) as report:
        for step in range(5):
            report.step(case, {"step": step, "iteration_s": 0.25})
    assert text.getvalue().splitlines() == [
        "fake/ddp x2: step 2 of 6, 32 samples/s",
        "fake/ddp x2: step 5 of 6, 32 samples/s",
    ]


def test_what_ranks_note_is_said_once():
    text = io.StringIO()
    cases = [make_case(seed=seed) for seed in range(3)]
    with Report(cases, True, Console(file=text, soft_wrap=True)) as report:
        for case, notes in zip(cases, (["slow"], ["slow", "passed over"], []), strict=True):
            report.finished(row_of(case, *notes))
    assert [line for line in text.getvalue().splitlines() if line[0] != "["] == ["note: slow", "note: passed over"]


def test_the_report_shows_steps_and_throughput_on_a_terminal():
    case = make_case()
    text = io.StringIO()
    with Report([case], True, Console(file=text, force_terminal=True, width=120)) as report:
        report.step(case, {"step": 2, "iteration_s": 0.25})
    assert "3/6" in text.getvalue()
    assert "32 samples/s" in text.getvalue()


def test_nothing_to_measure_is_refused_before_anything_starts(tmp_path):
    with pytest.raises(ConfigError, match="steps=6 leaves nothing to measure after warmup_steps=6; use warmup_steps=2"):
        Torchrun().run([make_case(warmup_steps=6)], Store(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_store_is_a_run_error(tmp_path):
    (tmp_path / "runs").write_text("a file where a directory should be")
    with pytest.raises(RunError, match="cannot keep results in"):
        Torchrun().run([make_case()], Store(tmp_path), progress=False)


def test_a_corrupt_row_stops_the_launcher_and_is_not_run_over(tmp_path):
    store = Store(tmp_path)
    run_dir = store.run_dir(make_case())
    run_dir.mkdir(parents=True)
    (run_dir / "row.json").write_text('{"run_id": ')
    with pytest.raises(RunError, match=r"row\.json:1: not a row"):
        Torchrun().run([make_case()], store, progress=False)
    assert [path.name for path in run_dir.iterdir()] == ["row.json"]


def test_the_registry_has_torchrun_and_needs_no_torch():
    assert engines["torchrun"].summary
    code = (
        "import sys; from ssfx.lab.engines import engines; engines.names(); "
        "sys.exit(bool({'torch', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
