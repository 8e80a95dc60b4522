"""NCCL's rules, without NCCL: what it asks of those who call it, held on ranks that exist only in bookkeeping.

All ranks issue the same collectives in the same order, whatever order gradients come in; one thread issues at a time,
on one stream; types, sizes and layouts are those that NCCL takes. On 8 ranks by the path of a device with streams, on
1,024 by that of the CPU.
"""

import threading
from typing import Any

import pytest
import torch
import torch.distributed as dist
from runtime.cases import DENSE, SPARSE, of_scheme
from runtime.fake_device import FakeDevice
from runtime.fake_network import GATHER, Network, one_of
from runtime.work import costs_for
from runtime.work_fake_device import equal_times
from torch import nn

import ssfx
from ssfx.schemes import schemes

SCHEMES = [*DENSE, *SPARSE]
MANY = 1024
BY_ROLE = {"gtopk", "hierarchical", "micro", "oktopk", "parallax"}
"""Ranks have roles, or agree on sizes, which takes messages that travel: kinds of collectives are compared."""


class Forked(nn.Module):
    """Two branches of different sizes; which of them is computed first, and so has its gradients last, is said."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Linear(20, 30), nn.Linear(20, 40), nn.Linear(70, 5)

    def forward(self, x: torch.Tensor, order: str) -> torch.Tensor:
        parts = {branch: torch.tanh(getattr(self, branch)(x)) for branch in order}
        return self.head(torch.cat([parts["a"], parts["b"]], dim=1))


def steps_of(scheme: str) -> range:
    return range(7 if schemes[scheme].profiled else 2)


def on_streams(scheme: str, rank: int, order: str) -> tuple[Network, set[str], Any]:
    """Train as one of 8 ranks on a device with streams; return calls, streams of a backward pass, and the group."""
    fake = FakeDevice()
    network = Network(lambda: fake.current().name)
    with one_of(8, rank), network.connected(), equal_times(), fake.training():
        torch.manual_seed(0)
        model = Forked()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        sync = ssfx.attach(model, optimizer, **{"costs": costs_for(8), **of_scheme(scheme, 8)})
        for _ in steps_of(scheme):
            optimizer.zero_grad()
            network.streams.clear()
            model(torch.ones(2, 20), order).square().mean().backward()
            (group,) = network.streams
            streams = network.streams[group]
            optimizer.step()
        of_the_script = group is dist.group.WORLD
        sync.detach()
    return network, streams, of_the_script


def collectives_of(network: Network, scheme: str) -> list[tuple[Any, ...]]:
    """Return what all ranks take part in, in order."""
    together = [call for call in network.calls if call[0] != "swap"]
    return [call[:2] for call in together] if scheme in BY_ROLE else together


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
def test_ranks_issue_alike_on_one_stream_whatever_order_gradients_come_in(scheme: str) -> None:
    first, streams, of_the_script = on_streams(scheme, 0, "ab")
    other, others_streams, _ = on_streams(scheme, 5, "ba")
    assert first.broken == other.broken == []
    assert collectives_of(first, scheme) == collectives_of(other, scheme)
    assert streams == others_streams == {"stream 1"}, "the queue's stream, which is the first that attach makes"
    assert not of_the_script
    assert first.threads | other.threads <= {"MainThread", "ssfx-exchange"}


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_thousand_ranks_plan_and_step(scheme: str) -> None:
    seen = []
    for rank in (0, MANY - 1):
        network = Network()
        with one_of(MANY, rank), network.connected(), equal_times():
            torch.manual_seed(0)
            model = nn.Sequential(nn.Linear(64, 4096), nn.Tanh(), nn.Linear(4096, 8))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            options = {"costs": costs_for(MANY), **of_scheme(scheme, MANY, density=1e-4)}
            sync = ssfx.attach(model, optimizer, **options)
            for _ in steps_of(scheme):
                optimizer.zero_grad()
                model(torch.ones(2, 64)).square().mean().backward()
                optimizer.step()
            seen.append((sync.plan.digest, collectives_of(network, scheme)))
            skipped = sync.stats()["skipped_steps"]
            sync.detach()
            segments = [segment for _, lane in sync.plan.lanes() for segment in lane.segments]
        assert network.broken == []
        assert skipped == 0
        assert any(not segment.dense for segment in segments) or scheme in DENSE
    assert seen[0] == seen[1]


def test_what_breaks_a_rule_is_found() -> None:
    network = Network()
    with one_of(4, 1), network.connected():
        to_two = dist.P2POp(dist.isend, torch.zeros(2), 2)
        dist.batch_isend_irecv([to_two])
        dist.all_reduce(torch.zeros(2, dtype=torch.int16))
        dist.broadcast(torch.zeros(4, 2).t(), 0)
        getattr(dist, GATHER)(torch.zeros(8), torch.zeros(2))
        dist.batch_isend_irecv([to_two, dist.P2POp(dist.isend, torch.zeros(2), 2)])
    assert network.broken == [
        "swap: NCCL wants a collective of all ranks before the first message between two",
        "all_reduce: NCCL has no torch.int16",
        "broadcast: (2, 4) is not contiguous",
        "swap: several groups, or several messages between two ranks, in one batch",
    ]
    network = Network()
    with pytest.raises(RuntimeError), one_of(4, 1), network.connected():
        getattr(dist, GATHER)(torch.zeros(9), torch.zeros(2))
    assert network.broken == ["all_gather: (9,) is no room for 4 times (2,)"]


def test_two_threads_that_issue_at_a_time_are_found() -> None:
    inside, gone_on = threading.Event(), threading.Event()

    def stream() -> str:
        inside.set()
        gone_on.wait()
        return "host"

    network = Network(stream)
    with one_of(4, 1), network.connected():
        thread = threading.Thread(target=lambda: dist.all_reduce(torch.zeros(2)))
        thread.start()
        inside.wait()
        dist.all_reduce(torch.zeros(2))
        gone_on.set()
        thread.join()
    assert network.broken == ["all_reduce: two threads issue at a time"]
