"""Buffers are rank 0's on all ranks when the next forward pass begins, however they were written."""

import pytest
import torch
from runtime.ranks import add_up, each_rank, is_rank_0s
from runtime.work_guards import error_of
from torch import nn

import ssfx

LARGE = 20_000
KINDS = {
    "numbers": lambda n: torch.zeros(n),
    "counts": lambda n: torch.zeros(n, dtype=torch.int64),
    "flags": lambda n: torch.zeros(n, dtype=torch.bool),
    "mask": lambda n: torch.full((n,), float("-inf")),
    "half": lambda n: torch.zeros(n, dtype=torch.bfloat16),
    "conjugated": lambda n: torch.ones(n, dtype=torch.complex64).conj(),
    "transposed": lambda n: torch.zeros(n // 4, 4).t(),
}


def _net(buffers: dict[str, torch.Tensor] | None = None) -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
    for name, buffer in (buffers or {}).items():
        net.register_buffer(name, buffer)
    return net


def _attach(net: nn.Module, group, rank: int):
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    sync = ssfx.attach(net, optimizer, comm=group)
    torch.manual_seed(rank)
    return optimizer, sync


def _step(net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    net(torch.randn(6, 8)).square().mean().backward()
    optimizer.step()


@pytest.mark.parametrize("size", [40, LARGE])
@pytest.mark.parametrize("kind", KINDS)
@each_rank(2, by="two")
def test_a_write_by_data_on_one_rank_is_undone_by_the_next_exchange(group, rank, world, kind, size):
    net = _net({"kept": KINDS[kind](size)})
    optimizer, sync = _attach(net, group, rank)
    first = net.kept.clone()
    _step(net, optimizer)
    if rank == 1:
        net.kept.data[0] = 2
    assert torch.equal(first, net.kept) == (rank == 0)
    _step(net, optimizer)
    assert torch.equal(first, net.kept)
    assert is_rank_0s(net[1].running_mean, group)
    sync.detach()


@each_rank(2, by="two")
def test_a_permuted_large_buffer_is_noticed(group, rank, world):
    net = _net({"kept": torch.arange(float(LARGE))})
    optimizer, sync = _attach(net, group, rank)
    if rank == 1:
        net.kept.data[[0, LARGE - 1]] = net.kept.data[[LARGE - 1, 0]]
    _step(net, optimizer)
    assert net.kept[0] == 0.0
    sync.detach()


@pytest.mark.parametrize("size", [40, LARGE])
@each_rank(2, by="two")
def test_a_buffer_made_in_inference_mode_is_exchanged(group, rank, world, size):
    with torch.inference_mode():
        made = torch.full((size,), float(rank))
    net = _net()
    optimizer, sync = _attach(net, group, rank)
    net.register_buffer("later", made)
    sync._buffers.look()  # as after news of a module: a buffer alone is no news
    for _ in range(2):
        _step(net, optimizer)
    assert float(net.later[0]) == (0.0 if size == 40 else float(rank))
    sync.detach()


@pytest.mark.parametrize("order", ["retain", "ahead", "again"])
@each_rank(2, by="two")
def test_statistics_are_not_written_into_a_graph_that_lives(group, rank, world, order):
    net = _net()
    optimizer, sync = _attach(net, group, rank)
    for _ in range(4):
        optimizer.zero_grad()
        if order == "ahead":
            outs = [net(torch.randn(6, 8)), net(torch.randn(6, 8))]
            for out in outs:
                out.square().mean().backward()
        else:
            out = net(torch.randn(6, 8))
            out[:3].square().mean().backward(retain_graph=True)
            if order == "again":
                net(torch.randn(6, 8))
            out[3:].square().mean().backward()
        optimizer.step()
    assert is_rank_0s(net[1].running_var, group)
    sync.detach()


@each_rank(2, by="two")
def test_what_the_script_writes_after_the_exchange_stays(group, rank, world):
    net = _net({"kept": torch.zeros(3)})
    optimizer, sync = _attach(net, group, rank)
    net(torch.randn(6, 8)).square().mean().backward()
    net.kept.fill_(7.0)
    optimizer.step()
    assert net.kept.tolist() == [7.0] * 3
    sync.detach()


@pytest.mark.parametrize("other", ["size", "dtype"])
@each_rank(2, by="two")
def test_buffers_of_other_sizes_are_refused_by_name(group, rank, world, other):
    net = _net({"place": torch.zeros(2)})
    optimizer, sync = _attach(net, group, rank)
    _step(net, optimizer)
    if rank and other == "size":
        net.place = torch.zeros(10)
    else:
        net.place = torch.zeros(5, dtype=torch.int64 if rank else torch.float32)
    text = error_of(lambda: _step(net, optimizer))
    sync.detach()
    assert "buffer place is (5,) of torch.float32 on rank 0 and" in text
    assert "broadcast_buffers=False" in text


@each_rank(2, by="two")
def test_a_buffer_that_grows_on_all_ranks_goes_on(group, rank, world):
    net = _net({"place": torch.zeros(2)})
    optimizer, sync = _attach(net, group, rank)
    _step(net, optimizer)
    net.place = torch.full((5,), float(rank))
    _step(net, optimizer)
    _step(net, optimizer)
    mean = net.place.clone()
    add_up(mean, group)
    assert mean.tolist() == [0.0] * 5
    assert sync.skipped_steps == 0
    sync.detach()
