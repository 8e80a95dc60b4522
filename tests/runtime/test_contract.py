"""The contract of docs/attach.md, script by script: applied and kept back together are what the script stepped with."""

from typing import Any

import pytest
import torch
from runtime.contract_scripts import LR, SOURCES, STEPS, Script, books
from runtime.habit import heard
from runtime.pool import Pool
from runtime.ranks import Virtual, add_up, each_rank
from runtime.work import costs_for
from runtime.work_guards import error_of
from torch import nn

import ssfx

SCHEMES: dict[str, dict[str, Any]] = {
    "ddp": {"scheme": "ddp"},
    "topk": {"scheme": "topk", "density": 0.1},
    "per_tensor": {"scheme": "per_tensor", "compressor": "topk", "density": 0.1},
    "ssfusion_oi": {"scheme": "ssfusion_oi", "density": 0.1, "rule": "paper", "costs": costs_for(2)},
}
NAMES = [script.__name__ for script in SOURCES]
MEMORIES = [name for name in SCHEMES if name != "ddp"]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("script", NAMES)
def test_nothing_is_lost_and_nothing_counts_twice(script: str, scheme: str) -> None:
    assert max(Virtual().run(books, 2, script, SCHEMES[scheme])) < 1e-5


def test_real_ranks_keep_the_same_books(pool: Pool) -> None:
    for number, script in enumerate(NAMES):
        assert max(pool.run(books, 2, script, SCHEMES[MEMORIES[number % len(MEMORIES)]])) < 1e-5, script


def test_a_source_is_a_report_or_said_to_be_none() -> None:
    assert all("#" in source or source == "no report" for source in SOURCES.values())
    assert sum("#" in source for source in SOURCES.values()) > 2 * len(SOURCES) // 3


@pytest.mark.parametrize("scheme", MEMORIES)
@pytest.mark.parametrize("by_data", [False, True])
@each_rank(2, by="two")
def test_weights_that_a_script_moves_without_a_word_are_an_error(group, rank, world, scheme, by_data):
    s = Script(group, rank, SCHEMES[scheme])
    turns = []

    def train() -> None:
        for turn in range(STEPS):
            turns.append(turn)
            s.backward()
            for p in s.net.parameters():
                (p.data if by_data else p.detach()).add_(p.grad, alpha=-LR)
            s.net.zero_grad()

    text = error_of(train)
    s.sync.detach()
    assert "sync.used()" in text
    assert "scheme=ddp" in text
    assert turns[-1] == 3 + by_data  # the first write by `.data` shows by bits that are only kept from then on


@pytest.mark.parametrize("scheme", MEMORIES)
@each_rank(2, by="two")
def test_three_loads_of_the_same_weights_in_a_row_are_no_moves(group, rank, world, scheme):
    s = Script(group, rank, SCHEMES[scheme])
    saved = {name: value.clone() for name, value in s.net.state_dict().items()}
    for _ in range(6):
        s.backward()
        s.net.load_state_dict(saved)
        s.optimizer.zero_grad()
    s.backward()
    s.step()
    assert s.off(world) < 1e-5
    s.sync.detach()


def _says(group: Any, rank: int, world: int, change: str) -> None:
    s = Script(group, rank, SCHEMES["topk" if change == "nothing sent" else "per_tensor"])
    for _ in range(5):
        with s.sync.no_sync() if change == "local" else torch.enable_grad():
            s.backward()
        if change == "thrown away":
            s.optimizer.zero_grad()
            s.backward()
        if change == "rows":
            s.net.large.grad[::3] = 0.0  # type: ignore[index]
        if change == "nothing sent":
            s.net.small.grad = None
        s.optimizer.step()
        s.optimizer.zero_grad()
    s.sync.detach()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("thrown away", "gradient of large, and it is gone"),
        ("rows", "cancelled averages of large"),
        ("nothing sent", "cancelled averages of small"),
        ("local", "sync.synchronize() before it"),
    ],
)
def test_what_a_script_should_say_is_told_once_with_the_parameter(change: str, says: str) -> None:
    with heard(everywhere=True) as lines:
        Virtual().run(_says, 2, change)
    assert len([line for line in lines if says in line]) == 1


@each_rank(2, by="two")
def test_a_step_whose_passes_were_all_local_exchanges_nothing(group, rank, world):
    s = Script(group, rank, SCHEMES["topk"])
    for step in range(6):
        with s.sync.no_sync():
            s.backward()
        s.optimizer.step()
        s.optimizer.zero_grad()
        if step == 2:
            assert torch.allclose(s.net.large.detach(), -3 * LR * s.net.pattern["large"], rtol=1e-4)
    assert s.sync.stats()["steps"] == 0
    with s.sync.no_sync():
        s.backward()
    s.sync.synchronize()
    assert s.sync.stats()["steps"] == 1
    s.sync.detach()


def _perturbs(group: Any, rank: int, world: int, restores: bool) -> None:
    torch.manual_seed(0)
    net = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(net.parameters(), LR)
    sync = ssfx.attach(net, optimizer, comm=group)
    for _ in range(12):
        optimizer.zero_grad()
        kept = net.weight.detach().clone()
        with torch.no_grad():
            net.weight.add_(0.1 * rank)
        net(torch.ones(2, 8)).square().mean().backward()
        if restores:
            with torch.no_grad():
                net.weight.copy_(kept)
        optimizer.step()
    sync.detach()


@pytest.mark.parametrize("restores", [True, False])
def test_weights_perturbed_during_a_pass_are_no_alarm_and_parted_ones_are(restores: bool) -> None:
    with heard(everywhere=True) as lines:
        Virtual().run(_perturbs, 2, restores)
    assert sum("no longer equal" in line for line in lines) == (not restores)


@each_rank(2, by="two")
def test_an_exact_pass_between_compressed_ones_changes_nothing_of_them(group, rank, world):
    ends = []
    for exact in (False, True):
        s = Script(group, rank, SCHEMES["topk"])
        for _ in range(4):
            s.backward()
            s.step()
            if exact:
                with s.sync.exact():
                    s.backward(7.0)
                mean = s.net.pattern["large"].clone()
                add_up(mean, group)
                assert torch.allclose(s.net.large.grad, 7.0 * mean / world, rtol=1e-5)
                s.optimizer.zero_grad()
        ends.append([p.detach().clone() for p in s.net.parameters()])
        s.sync.detach()
    assert all(map(torch.equal, *ends))
