"""Ranks that part: who waits for one that left says so at once."""

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from processes import HANG_S, Started
from runtime.test_guards import said

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
