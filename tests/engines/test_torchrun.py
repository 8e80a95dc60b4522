"""The launcher with real torchrun processes, undisturbed and with every kind of fault."""

import getpass
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from engines.helpers import HERE, hurry, make_case, phases
from processes import HANG_S, finished, wait_until

from ssfx.core.errors import REQUEUE_EXIT_CODE, RunError
from ssfx.core.files import read_json
from ssfx.core.machine import own_cores
from ssfx.lab.engines.failure import RunsFailed
from ssfx.lab.engines.launch import TEMPORARY, Launch
from ssfx.lab.engines.torchrun import Torchrun
from ssfx.lab.workloads.record import records_in
from ssfx.planning.plan import Plan

pytestmark = [pytest.mark.torchrun, pytest.mark.slow]
FAKE = "fake_train:train"


@pytest.fixture
def drive(store, started):
    """Start launchers in processes of their own."""

    def start(*cases, ctrl_c=True, **environment) -> subprocess.Popen:
        command = [sys.executable, str(HERE / "drive.py"), str(store.runs.parent), *(c.to_json() for c in cases)]
        environment = {**os.environ, **environment}
        return started.start(command, ctrl_c=ctrl_c, env=environment, stderr=subprocess.PIPE, text=True)

    return start


def steps_of(store, launcher):
    """Return how many steps rank 0 has done in the only run, under a launcher that runs."""
    assert launcher.poll() is None, launcher.stderr.read()
    return sum(len(path.read_text().splitlines()) for path in store.runs.glob("*/attempt-1/rank0.jsonl"))


def wait_for_first_step(store, launcher):
    wait_until(lambda: steps_of(store, launcher))


@pytest.mark.nightly
def test_three_cases_share_one_launch_and_a_second_call_does_nothing(store, monkeypatch, capfd):
    cases = [make_case(seed=seed) for seed in (3, 1, 2)]
    spoilt = cases[1]
    monkeypatch.setenv("SSFX_FAULT", f"nan:rank=1,step=3,phase=forward,run={spoilt.run_id}")
    rows = Torchrun(train=FAKE).run(cases, store)

    assert [row.case for row in rows] == cases
    assert len(list(store.runs.glob("*/attempt-1/batch.json"))) == 1
    lines = capfd.readouterr().err.splitlines()
    assert "3 case(s) on 2 cpu rank(s)" in lines[0]
    assert "fake/ddp x2: starting 2 ranks" in lines
    assert ["finished" in line for line in lines if line.startswith("[")] == [True] * 3

    metrics = rows[0].metrics
    assert metrics["iteration_s"] == 4.0  # the median of 2.5 .. 5.5, the steps after warm-up
    assert metrics["throughput_samples_per_s"] == 2.0
    assert metrics["other_s"] == pytest.approx(4.0 - 0.4)
    assert metrics["top1"] == 0.5
    assert metrics["peak_memory_bytes"] > 50 * 2**20
    assert rows[0].samples["iteration_s"] == [2.5, 3.5, 4.5, 5.5]

    # A NaN on one rank: the step is skipped on both, and the row says that the fault was injected.
    assert [row.metrics["skipped_steps"] for row in rows] == [0, 1, 0]
    assert rows[1].manifest["faults"] == [{"kind": "nan", "rank": 1, "step": 3, "phase": "forward"}]
    assert rows[0].manifest["faults"] == []

    manifest = rows[0].manifest
    assert manifest["attempt"] == 1
    assert manifest["exit_reason"] == "finished"
    plan = Plan.from_json((store.run_dir(cases[0]) / "attempt-1" / "plan.json").read_text())
    assert manifest["plan_digest"] == plan.digest
    assert manifest["versions"]["torch"]
    assert manifest["background_cores"] >= 0
    if len(usable := own_cores()) > 1:
        assert sorted(core for cores in manifest["rank_cores"] for core in cores) == usable
    assert "GLIBC_TUNABLES" in manifest["environment"]
    text = rows[0].to_json()
    assert not re.search(r'"/\w', text)
    for private in (socket.gethostname(), str(Path.home()), str(store.runs), f'"{getpass.getuser()}"'):
        assert private not in text

    def forbidden(*_):
        raise AssertionError("a finished case was started again")

    monkeypatch.setattr(Launch, "__enter__", forbidden)
    assert Torchrun(train=FAKE).run(cases, store) == rows
    lines = capfd.readouterr().err.splitlines()
    assert ["already finished, nothing to do" in line for line in lines] == [True] * 3


def test_a_killed_rank_is_named_and_costs_no_finished_case(store, monkeypatch):
    cases = [make_case(seed=seed) for seed in (1, 2)]
    monkeypatch.setenv("SSFX_FAULT", f"kill:rank=1,step=4,phase=backward,run={cases[1].run_id}")
    with pytest.raises(RunError, match="rank 1 was killed by SIGKILL in backward at step 4") as caught:
        Torchrun(train=FAKE).run(cases, store, progress=False)

    log = store.run_dir(cases[1]) / "attempt-1" / "torchrun.log"
    assert str(log) in str(caught.value)
    assert "SIGKILL" in log.read_text()
    assert [store.status(case) for case in cases] == ["finished", "failed"]
    first = store.row(cases[0])

    rows = Torchrun(train=FAKE).run(cases, store, progress=False)
    assert rows[0] == first
    assert [row.manifest["attempt"] for row in rows] == [1, 2]
    assert len(rows[1].manifest["faults"]) == 1  # it fires once, and is remembered
    assert log.exists()


@pytest.mark.nightly
def test_two_cases_at_a_time_have_cores_of_their_own_and_one_that_fails_costs_no_other(store, monkeypatch, capfd):
    cases = [make_case(world_size=1, seed=seed) for seed in (1, 2, 3, 4)]
    monkeypatch.setenv("SSFX_FAULT", f"raise:rank=0,step=2,phase=step,run={cases[0].run_id}")
    with pytest.raises(RunsFailed, match=f"{cases[0].run_id} .* raised InjectedFault") as caught:
        Torchrun(train=FAKE).run(cases, store, jobs=2)
    assert list(caught.value.failures) == [cases[0].run_id]
    assert [store.status(case) for case in cases] == ["failed", "finished", "finished", "finished"]
    first, second = (store.row(case).manifest for case in cases[2:])
    assert not set(first["rank_cores"][0]) & set(second["rank_cores"][0])
    assert first["jobs"] == second["jobs"] == 2
    assert "up to 2 cases ran at the same time" in first["notes"][-1]
    lines = capfd.readouterr().err.splitlines()
    assert [line[:5] for line in lines if line.startswith("[")] == ["[1/4]", "[2/4]", "[3/4]", "[4/4]"]


@pytest.mark.nightly
def test_an_exception_on_one_rank_is_named(store, monkeypatch):
    monkeypatch.setenv("SSFX_FAULT", "raise:rank=1,step=2,phase=exchange")
    with pytest.raises(RunError, match=r"rank 1 raised InjectedFault: injected .* in exchange at step 2"):
        Torchrun(train=FAKE).run([make_case()], store, progress=False)
    report = json.loads(next(store.runs.glob("*/attempt-1/failure-rank1.json")).read_text())
    assert report["phase"] == "exchange"
    assert "InjectedFault" in report["traceback"]


def fault_of(store):
    """Return whether the fault of the only run has happened."""
    return any(path.stat().st_size for path in store.runs.glob("*/attempt-1/fault-rank*.json"))


def test_a_hanging_rank_is_found_and_all_stacks_are_kept(store, monkeypatch):
    monkeypatch.setenv("SSFX_FAULT", "hang:rank=1,step=3,phase=forward")
    hurry(monkeypatch, lambda: phases(store.runs, 2) == [(3, "exchange"), (3, "forward")] and fault_of(store))
    with pytest.raises(RunError, match="rank 1 hangs, without progress for 70 s, in forward at step 3"):
        Torchrun(train=FAKE).run([make_case()], store, progress=False, stall_timeout_s=70)
    stacks = [next(store.runs.glob(f"*/attempt-1/stacks-rank{rank}.txt")).read_text() for rank in (0, 1)]
    assert "faults.py" in stacks[1]
    assert "fake_train.py" in stacks[0]


@pytest.mark.nightly
def test_a_full_disk_is_named_although_no_report_can_be_written(store, monkeypatch):
    monkeypatch.setenv("SSFX_FAULT", "disk_full:rank=0,step=3,phase=step")
    with pytest.raises(RunError, match=r"rank 0 raised OSError: .* in step at step 3"):
        Torchrun(train=FAKE).run([make_case()], store, progress=False)


@pytest.mark.nightly
def test_a_closed_terminal_ends_all_ranks(store, drive, started, tmp_path):
    case, temporary = make_case(steps=100_000), tmp_path / "tmp"
    temporary.mkdir()
    launcher = drive(case, FAKE_STEP_S="0.05", TMPDIR=str(temporary))
    wait_for_first_step(store, launcher)
    launcher.send_signal(signal.SIGHUP)
    assert launcher.wait(HANG_S) == 129
    assert started.left() == []
    assert store.status(case) == "half"
    assert "ssfx: ended by SIGHUP; finished runs are kept" in launcher.stderr.read()
    assert not (store.run_dir(case) / "attempt-1" / TEMPORARY).exists()
    assert [
        path for path in temporary.iterdir() if not path.name.startswith("torchinductor_")
    ] == []  # a cache of torch


@pytest.mark.nightly
def test_a_launcher_that_was_started_with_ctrl_c_ignored_goes_on_until_sigterm(store, drive, started):
    launcher = drive(make_case(steps=100_000), ctrl_c=False, FAKE_STEP_S="0.05")
    wait_for_first_step(store, launcher)
    launcher.send_signal(signal.SIGINT)
    done = steps_of(store, launcher)
    wait_until(lambda: steps_of(store, launcher) > done + 20)
    launcher.send_signal(signal.SIGTERM)
    assert launcher.wait(HANG_S) == 143
    assert started.left() == []


@pytest.mark.nightly
def test_ranks_of_a_killed_launcher_end_and_its_claim_is_free(store, drive, started):
    case = make_case(steps=100_000)
    launcher = drive(case, FAKE_STEP_S="0.05")
    wait_for_first_step(store, launcher)
    assert store.claim(case) is None
    launcher.kill()
    launcher.wait(HANG_S)
    wait_until(lambda: not started.left())
    claims = []
    wait_until(lambda: claims.append(store.claim(case)) or claims[-1])  # a process that ends lets go of its files last
    claims[-1].release()


@pytest.mark.nightly
def test_two_launchers_run_a_case_once(store, drive, tmp_path):
    case, hold = make_case(), tmp_path / "go on"
    first = drive(case, FAKE_HOLD=str(hold))
    wait_for_first_step(store, first)
    second = drive(case)
    said = second.stderr.readline()
    assert f"process {first.pid}; waiting" in said
    hold.touch()
    outputs = [launcher.communicate(timeout=HANG_S)[1] for launcher in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], outputs
    assert store.attempts(case) == [1]
    assert "waiting" not in outputs[0]
    assert "already finished, nothing to do" in outputs[1]


def test_a_worker_refuses_another_world_size(store):
    case = make_case()
    run_dir = store.run_dir(case)
    run_dir.mkdir(parents=True)
    (run_dir / "case.json").write_text(case.to_json())
    batch = store.runs / "batch.json"
    batch.write_text(json.dumps({"train": FAKE, "jobs": [{"run_dir": str(run_dir), "attempt": 1}]}))
    environment = {**os.environ, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    command = [sys.executable, "-m", "ssfx.lab.worker.rank", str(batch)]
    done = finished(command, env=environment, stdin=subprocess.DEVNULL)
    assert done.returncode == 1
    failure = json.loads((run_dir / "attempt-1" / "failure-rank0.json").read_text())
    assert failure["error"] == "RunError: the case needs world size 2, but 1 ranks were started"
    assert failure["phase"] == "setup"


@pytest.mark.nightly
def test_the_real_training_goes_on_after_a_killed_rank_and_after_a_warning(store, drive, started, monkeypatch):
    case = make_case(model="resnet_tiny", dataset="digits", checkpoint_every=3, steps=9, warmup_steps=1)
    run_dir = store.run_dir(case)
    monkeypatch.setenv("SSFX_FAULT", "kill:rank=0,step=4,phase=exchange")
    with pytest.raises(RunError, match="rank 0 was killed by SIGKILL in exchange at step 4"):
        Torchrun().run([case], store, progress=False)

    launcher = drive(case, DRIVE_TRAIN="")
    wait_until((run_dir / "attempt-2").exists)  # ranks take seconds to begin, and stop after their second step
    launcher.send_signal(signal.SIGUSR1)
    said = launcher.communicate(timeout=HANG_S)[1]
    assert launcher.returncode == REQUEUE_EXIT_CODE, said
    assert started.left() == []
    assert store.status(case) == "half"
    reports = [read_json(run_dir / f"attempt-2/stopped-rank{rank}.json") for rank in (0, 1)]
    assert reports[0] == reports[1]
    stopped = reports[0]["step"]
    assert f"stopped at the checkpoint after {stopped} of 9 steps; the same command continues" in said
    steps = [record.step for record in records_in(run_dir / "attempt-2" / "rank0.jsonl", torn=False)]
    assert steps == list(range(3, stopped))

    row = Torchrun().run([case], store, progress=False)[0]
    assert row.manifest["attempt"] == 3
    assert row.manifest["resumed_from_step"] == stopped
    steps = [record.step for record in records_in(run_dir / "attempt-3" / "rank1.jsonl", torn=False)]
    assert steps == list(range(stopped, 9))
    assert len(row.samples["iteration_s"]) == 8
