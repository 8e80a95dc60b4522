"""Ranks that part: who waits for one that left says so at once."""

import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch.distributed as dist
from processes import HANG_S, Started
from runtime.test_guards import said

from ssfx.core.errors import RunError
from ssfx.runtime.lifetime import Peers

SCRIPT = Path(__file__).parent / "script_peers.py"
ENDS_ALONE = hasattr(dist.ProcessGroupGloo, "register_abort_hook")
"""Whether Python ends though a peer lives on that an exchange waits for: with torch 2.11's gloo it does not, in plain
torch neither, before the group's time-out."""


def ranks_of(started: Started, where: str, scheme: str, case: str) -> list[Any]:
    return [
        started.start(
            [sys.executable, str(SCRIPT), where, str(rank), scheme, case],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]


def line_of(process: Any) -> str:
    """The next line that a rank says, which comes long before the time-out of its process group."""
    return str(process.stdout.readline()).rstrip("\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "case"), [("ddp", "end"), ("topk", "raise"), ("oktopk", "detach"), ("topk", "drop"), ("oktopk", "end")]
)
def test_a_rank_that_leaves_is_named_by_those_who_wait_for_it(
    started: Started, tmp_path: Path, scheme: str, case: str
) -> None:
    waiting, leaving = ranks_of(started, str(tmp_path / "store"), scheme, case)
    words = {
        "end": "ended",
        "raise": "ended with ValueError",
        "detach": "has detached",
        "drop": "has dropped its model",
    }
    why = words[case]
    said(line_of(waiting), f"rank 1 {why} after 3 exchanges", "exchange 4", "sync.join()")
    stays = case in ("detach", "drop")
    if stays and not ENDS_ALONE:
        leaving.terminate()
    assert waiting.wait(HANG_S) == 0, waiting.stderr.read()
    if not stays:
        assert leaving.wait(HANG_S) == (case == "raise")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["ddp", "oktopk"])
def test_a_rank_that_does_not_come_is_named_before_the_time_out(started: Started, tmp_path: Path, scheme: str) -> None:
    waiting, late = ranks_of(started, str(tmp_path / "store"), scheme, "late")
    said(line_of(waiting), "rank 0 has waited", "in exchange 4 for rank 1, which did not come to it", "sync.join()")
    late.terminate()
    assert waiting.wait(HANG_S) == 0
    assert waiting.stderr.read().count("in exchange 4 for rank 1") == 1  # the warning, after a quarter of the time


def peers(monkeypatch: pytest.MonkeyPatch, world: int, clock: list[float], **waits: float) -> list[Peers]:
    """Return what ranks of one process know of each other, with time as `clock` says."""
    monkeypatch.setattr("ssfx.runtime.lifetime.agree", lambda comm, make: "one")
    monkeypatch.setattr("ssfx.runtime.lifetime.time.monotonic", lambda: clock[0])
    written: dict[str, str] = {}
    notes = SimpleNamespace(write=written.__setitem__, write_first=written.setdefault, read=written.get)
    alike = {"world_size": world, "first": 0, "notes": notes, "serial": False, **waits}
    comms = [SimpleNamespace(rank=r, **alike) for r in range(world)]
    return [Peers(comm) for comm in comms]  # type: ignore[arg-type]


def test_who_waits_says_once_for_whom(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    clock = [0.0]
    ranks = peers(monkeypatch, 4, clock, timeout_s=1800.0, others_s=40.0)
    for second in range(15):
        clock[0] = float(second)
        for rank in (1, 3):
            ranks[rank].look()
    assert [record.message.partition(";")[0] for record in caplog.records] == [
        "rank 1 has waited 10 s in exchange 1 for ranks 0, 2, which did not come to it"
    ]
    for one in ranks:
        one.exchanges = 1
    clock[0] = 100.0
    ranks[1].look()
    clock[0] = 130.0
    ranks[1].look()
    assert caplog.records[-1].message.startswith("rank 1 has waited 30 s in exchange 2 for ranks 0, 2, 3,")
    for one in ranks:
        one.close("ended")


def test_a_wait_ends_before_the_time_out_where_a_rank_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    ranks = peers(monkeypatch, 2, clock, timeout_s=40.0, others_s=40.0)
    ranks[0].look()
    clock[0] = 36.0
    ranks[0].look()
    clock[0] = 38.0
    with pytest.raises(RunError, match="has waited 38 s in exchange 1 for rank 1, which did not come"):
        ranks[0].look()
    ranks[1].look()  # here it comes: what is slow now is the network, which has a time-out of its own
    ranks[0].look()
    for one in ranks:
        one.close("ended")


@pytest.mark.nightly
@pytest.mark.slow
def test_the_rank_with_the_store_may_leave_first(started: Started) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    leaving, waiting = ranks_of(started, str(port), "topk", "rank 0 ends")
    text = line_of(waiting)
    said(text, "rank 0")
    assert "after 3 exchanges" in text or "store where the ranks met is gone" in text
    assert leaving.wait(HANG_S) == 0
    assert waiting.wait(HANG_S) == 0


LOADS = [("ddp", "load at once"), ("topk", "load later"), ("oktopk", "load later")]


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "case"), LOADS)
def test_a_state_loaded_on_one_rank_only_ends_every_rank(
    started: Started, tmp_path: Path, scheme: str, case: str
) -> None:
    loading, training = ranks_of(started, str(tmp_path / "store"), scheme, case)
    exchanges = 3 * (case == "load later")
    said(line_of(training), f"rank 0 loads a state after {exchanges} exchanges", "rank 1 went on", "load on every rank")
    said(line_of(loading), "rank 1 went on training and loaded no state", "load on every rank")
    for process in (loading, training):
        assert process.wait(HANG_S) == 0, process.stderr.read()
