"""Naming the first failing rank, from files as ranks and torchrun leave them."""

import json

import pytest
from engines.helpers import make_case

from ssfx.lab.engines.failure import diagnose, diagnose_stall, is_peer_error
from ssfx.lab.engines.job import Job
from ssfx.lab.results.store import RunLock
from ssfx.lab.worker.heartbeat import Heartbeat

PEER = "RuntimeError: [pair.cc:547] Connection closed by peer [127.0.0.1]:24180"


@pytest.fixture
def job(tmp_path):
    claim = RunLock.take(tmp_path / "run")
    job = Job(make_case(world_size=3), claim, 1)
    job.attempt_dir.mkdir()
    yield job
    claim.release()


def beat(job, rank, step=4, phase="exchange", error=""):
    Heartbeat(job.attempt_dir, rank).beat(step, phase, error)


def fail(job, rank, error, time):
    beat(job, rank, error=error)
    report = {"rank": rank, "phase": "exchange", "step": 4, "time": time, "error": error, "traceback": ""}
    (job.attempt_dir / f"failure-rank{rank}.json").write_text(json.dumps(report))


def torchrun_says(job, *codes):
    """The end of torchrun's log: all failures, the first observed one last."""
    blocks = [
        f"[{i}]:\n  time      : now\n  host      : here\n  rank      : {rank} (local_rank: {rank})\n"
        f"  exitcode  : {code} (pid: {100 + rank})\n  error_file: <N/A>\n  traceback : none"
        for i, (rank, code) in enumerate(codes)
    ]
    job.log.write_text("\n".join(blocks))


def test_a_killed_rank_comes_before_the_errors_of_its_peers(job):
    fail(job, 0, PEER, time=1.0)
    beat(job, 1, phase="backward")
    beat(job, 2)
    torchrun_says(job, (1, -9), (2, -15), (0, 1))
    assert str(diagnose(job, 1)) == "rank 1 was killed by SIGKILL in backward at step 4"


def test_an_abort_inside_the_transport_is_a_killed_rank(job):
    beat(job, 0)
    torchrun_says(job, (1, -15), (2, -15), (0, -6))
    assert str(diagnose(job, 1)) == "rank 0 was killed by SIGABRT in exchange at step 4"


def test_the_earliest_exception_that_is_not_about_a_peer_wins(job):
    fail(job, 0, PEER, time=1.0)
    fail(job, 1, "ValueError: second", time=3.0)
    fail(job, 2, "KeyError: first", time=2.0)
    torchrun_says(job, (0, 1), (1, 1), (2, 1))
    assert str(diagnose(job, 1)) == "rank 2 raised KeyError: first in exchange at step 4"


def test_a_silent_rank_is_named_when_its_peers_gave_up_waiting(job):
    fail(job, 0, "RuntimeError: Timed out waiting 60000ms for recv operation to complete", time=1.0)
    beat(job, 1, step=3, phase="backward")
    beat(job, 2)
    torchrun_says(job, (1, -15), (2, -15), (0, 1))
    assert str(diagnose(job, 1)).startswith("rank 1 did not answer its peers (RuntimeError: Timed out")


def test_ranks_that_the_launcher_ended_are_not_to_blame(job):
    fail(job, 0, "ValueError: real", time=1.0)
    beat(job, 1)
    beat(job, 2)
    assert str(diagnose(job, 1, ended=[1, 2])) == "rank 0 raised ValueError: real in exchange at step 4"


def test_an_error_that_only_the_heartbeat_could_hold_counts(job):
    beat(job, 0, error="OSError: [Errno 28] No space left on device")
    fail(job, 1, PEER, time=1.0)
    torchrun_says(job, (1, 1), (2, -15), (0, 1))
    assert str(diagnose(job, 1)) == "rank 0 raised OSError: [Errno 28] No space left on device in exchange at step 4"


def test_a_rank_that_exits_without_a_word_is_named(job):
    torchrun_says(job, (0, -15), (2, -15), (1, 3))
    assert str(diagnose(job, 1)) == "rank 1 exited with code 3 in setup at step 0"


def test_a_rank_ended_from_outside_is_named(job):
    torchrun_says(job, (0, -15), (1, -15), (2, -15))
    assert str(diagnose(job, 1)) == "rank 2 was killed by SIGTERM in setup at step 0"


def test_torchrun_itself_may_be_what_failed(job):
    job.log.write_text("usage: torchrun\nerror: no such module\n\n")
    assert str(diagnose(job, 2)) == "torchrun ended with code 2: error: no such module"
    beat(job, 0)
    assert str(diagnose(job, -9)) == "torchrun was killed by SIGKILL"


def test_a_stall_is_blamed_on_the_rank_furthest_behind(job):
    for rank, step in ((0, 4), (1, 4), (2, 3)):
        beat(job, rank, step=step, phase="exchange")
    assert str(diagnose_stall(job, 90)) == "rank 2 hangs, without progress for 90 s, in exchange at step 3"


def test_a_stall_is_not_blamed_on_a_rank_that_waits_in_an_exchange(job):
    beat(job, 0)
    beat(job, 1, phase="forward")
    beat(job, 2)
    assert str(diagnose_stall(job, 90)) == "rank 1 hangs, without progress for 90 s, in forward at step 4"


def test_a_stall_of_all_ranks_alike_blames_none(job):
    for rank in range(3):
        beat(job, rank)
    text = str(diagnose_stall(job, 90))
    assert text == "all ranks hang in exchange at step 4, without progress for 90 s"
    assert diagnose_stall(job, 90).rank is None


def test_a_stall_of_some_ranks_inside_an_exchange_names_them_all(job):
    for rank, step in ((0, 3), (1, 3), (2, 4)):
        beat(job, rank, step=step, phase="exchange")
    assert str(diagnose_stall(job, 90)) == "ranks 0, 1 hang in exchange at step 3, without progress for 90 s"
    assert diagnose_stall(job, 90).rank is None


def test_a_stall_before_any_rank_began_quotes_the_log(job):
    job.log.write_text("importing torch\n")
    assert str(diagnose_stall(job, 900)) == "no rank started within 900 s: importing torch"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (PEER, True),
        ("RuntimeError: Broken pipe", True),
        ("DistBackendError: NCCL error: remote process exited or there was a network error", True),
        ("RuntimeError: Connection reset by peer", True),
        ("RunError: rank 1 ended after 3 exchanges, and rank 0 waits for it in exchange 4; train inside join", True),
        ("RunError: the store where the ranks met is gone, and with it rank 0 or the launcher (recv)", True),
        ("ConfigError: density must be in (0, 1]", False),
        ("RunError: the loss on rank 0 was not finite for 3 steps in a row", False),
        ("OutOfMemoryError: CUDA out of memory", False),
    ],
)
def test_errors_about_peers_are_told_apart(error, expected):
    assert is_peer_error(error) is expected
