"""Ranks that part: who waits for one that left says so at once, and inside `join` uneven inputs are no trouble."""

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from processes import HANG_S, Started
from runtime.models import build, loss_of
from runtime.ranks import each_rank
from runtime.test_guards import said
from runtime.work import costs_for, train
from runtime.work_attach import SPARSE, distance, same_on_all_ranks, sgd
from runtime.work_guards import error_of
from torch.distributed.algorithms.join import Join

import ssfx

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


JOIN: dict[str, dict[str, Any]] = {
    "ddp": {},
    "topk": SPARSE,
    "oktopk": {"scheme": "oktopk", "density": 0.1},
    "observes": {"scheme": "ssfusion_oi", "density": 0.1, "profile_iters": 2},
}


@pytest.mark.parametrize("how", ["sync.join", "Join", "scaler", "adam", "accumulate"])
@pytest.mark.parametrize("options", JOIN.values(), ids=JOIN)
@pytest.mark.parametrize("batches", [[5, 3, 4], [0, 2, 0], [3, 3, 3]], ids=str)
@each_rank(3)
def test_uneven_inputs_inside_join(group, rank, world, options, how, batches):
    """Train with so many batches on each rank, then one more together."""
    model = build("mlp")
    optimizer = torch.optim.AdamW(model.parameters()) if how == "adam" else sgd(model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0) if how == "scaler" else None
    sync = ssfx.attach(model, optimizer, process_group=group, scaler=scaler, costs=costs_for(world), **options)

    def step(number: int) -> None:
        optimizer.zero_grad()
        if how == "accumulate":
            with sync.no_sync():
                loss_of(model, rank, 100 + number).backward()
        if scaler is None:
            loss_of(model, rank, number).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
        else:
            scaler.scale(loss_of(model, rank, number)).backward()
            scaler.step(optimizer)
            scaler.update()

    with Join([sync]) if how == "Join" else sync.join():
        for number in range(batches[rank]):
            step(number)
    report = {
        "exchanges": sync.step,
        "parameters agree": same_on_all_ranks(group, model),
        "optimizers agree": _states_agree(group, optimizer),
    }
    step(50)
    report["trains on"] = same_on_all_ranks(group, model) and sync.step == max(batches) + 1
    sync.detach()
    assert report["exchanges"] == max(batches)
    assert report["parameters agree"]
    assert report["optimizers agree"]
    assert report["trains on"]


@pytest.mark.parametrize("options", [{}, SPARSE | {"density": 1.0}], ids=["ddp", "topk-1"])
@each_rank(2)
def test_who_has_no_more_batches_counts_with_zeros(group, rank, world, options):
    model, twin = build("mlp"), build("mlp")
    mine, theirs = sgd(model.parameters()), sgd(twin.parameters())
    sync = ssfx.attach(model, mine, process_group=group, **options)
    other = ssfx.attach(twin, theirs, process_group=group, **options)
    with sync.join():
        train(model, mine, rank, range(5 if rank == 0 else 3))
    for step in range(5):
        theirs.zero_grad()
        (loss_of(twin, rank, step) * float(rank == 0 or step < 3)).backward()
        theirs.step()
    sync.detach()
    other.detach()
    assert distance(model, twin) < 1e-6


@each_rank(2)
def test_rates_that_differ_after_join_are_named(group, rank, world):
    model = build("mlp")
    optimizer = sgd(model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    sync = ssfx.attach(model, optimizer, process_group=group)

    def train() -> None:
        with sync.join():
            for step in range(3 + rank):
                optimizer.zero_grad()
                loss_of(model, rank, step).backward()
                optimizer.step()
                schedule.step()

    text = error_of(train)
    sync.detach()
    said(text, "learning rate of group 0", "rank 0", "rank 1", "schedule")


# ---- on each rank ---------------------------------------------------------------------------------------------------


def _states_agree(group: Any, optimizer: torch.optim.Optimizer) -> bool:
    same = True
    for state in (optimizer.state[p] for group_ in optimizer.param_groups for p in group_["params"]):
        for value in (value for _, value in sorted(state.items()) if isinstance(value, torch.Tensor)):
            first = value.clone()
            dist.broadcast(first, 0, group=group)
            same &= torch.equal(first, value)
    return same
