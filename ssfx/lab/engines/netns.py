"""The netns engine: real processes on several emulated hosts with shaped lines, all on this machine.

What the lines carry is measured: a row may only say "emulated" where the shaping is there.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ssfx.core.errors import ConfigError, RunError
from ssfx.core.machine import core_shares
from ssfx.core.rows import Row
from ssfx.lab.engines.base import engines
from ssfx.lab.engines.collect import collect
from ssfx.lab.engines.failure import Failure, diagnose
from ssfx.lab.engines.hosts import INTERFACE, Hosts, Network
from ssfx.lab.engines.job import Job
from ssfx.lab.engines.launch import Launch, settings, worker
from ssfx.lab.engines.places import Place
from ssfx.lab.engines.torchrun import Torchrun
from ssfx.lab.worker.heartbeat import Beat

TOLERANCE = 0.15
CERTAIN_GBPS = 1.0
"""Up to this rate a line that is too slow is an error; above it the cores may be what is slow."""

_SECONDS = 0.15
_TRIES = 10
"""A reader that the system keeps waiting finds bytes that came earlier: on a busy machine some tries seem too fast."""
_CHUNK_BYTES = 1 << 18
_TIMEOUT_S = 20.0


def measure(hosts: Hosts) -> list[float]:
    """Return the Gbit/s of payload that each host's line carries, measured by sending to the next host, one at a time.

    Of some tries the one nearest to the network's rate counts. RunError when that is faster by more than TOLERANCE: the
    shaping does not work. The same when it is that much slower, unless the network is asked for more than CERTAIN_GBPS.
    """
    wanted = hosts.network.gbps
    rates = []
    for host in range(hosts.network.hosts):
        tries: list[float] = []
        while len(tries) < _TRIES and not any(abs(rate - wanted) <= TOLERANCE * wanted for rate in tries):
            tries.append(one_way_gbps(hosts, host, (host + 1) % hosts.network.hosts))
        nearest = min(tries, key=lambda rate: abs(rate - wanted))
        _check(hosts.network, host, nearest)
        rates.append(round(nearest, 4))
    return rates


def too_slow(network: Network, rates: list[float]) -> bool:
    """True when a line that was let pass carries less than was asked for by more than TOLERANCE."""
    return min(rates) < network.gbps * (1 - TOLERANCE)


def _check(network: Network, host: int, rate: float) -> None:
    fast = rate > network.gbps * (1 + TOLERANCE)
    if fast or (too_slow(network, [rate]) and network.gbps <= CERTAIN_GBPS):
        raise RunError(
            f"the line of emulated host {host} carries {rate:.3g} Gbit/s instead of {network.gbps:g}: "
            + ("it is not shaped" if fast else "the machine is too busy or too slow for it")
        )


def one_way_gbps(hosts: Hosts, source: int, target: int) -> float:
    """Return the rate at which `target` receives from `source` over one TCP connection, the bursts left out."""
    skipped_bytes = 2 * hosts.network.burst_bytes + _CHUNK_BYTES
    total_bytes = skipped_bytes + int(hosts.network.gbps * 1e9 / 8 * _SECONDS)
    try:
        with ExitStack() as stack:
            sender, receiver = _connected(hosts, source, target, stack)
            thread = threading.Thread(target=_send, args=(sender, total_bytes))
            thread.start()
            stack.callback(thread.join)
            stack.callback(receiver.close)  # first, so that the thread does not wait for a reader that has given up
            buffer = bytearray(_CHUNK_BYTES)
            got = counted_from = 0
            start = 0.0
            while got < total_bytes:
                more = receiver.recv_into(buffer)
                if not more:
                    raise ConnectionError("the connection was closed")
                got += more
                if not counted_from and got >= skipped_bytes:
                    counted_from, start = got, time.perf_counter()
            return (got - counted_from) * 8e-9 / (time.perf_counter() - start)
    except OSError as error:
        raise RunError(f"emulated host {source} cannot reach host {target}: {error}") from None


def _connected(hosts: Hosts, source: int, target: int, stack: ExitStack) -> tuple[socket.socket, socket.socket]:
    """Return both ends of a connection, closed by `stack`."""
    listener, sender = (stack.enter_context(hosts.socket(host)) for host in (target, source))
    for one in (listener, sender):
        one.settimeout(_TIMEOUT_S)
    listener.bind((hosts.address(target), 0))  # any free port
    listener.listen(1)
    sender.connect(listener.getsockname())
    receiver = stack.enter_context(listener.accept()[0])
    receiver.settimeout(_TIMEOUT_S)
    return sender, receiver


def _send(sender: socket.socket, total_bytes: int) -> None:
    with suppress(OSError):  # the receiver sees it too, and says so
        for _ in range(0, total_bytes, _CHUNK_BYTES):
            sender.sendall(bytes(_CHUNK_BYTES))


_PORT = 29500
_DIES_WITH_LAUNCHER = ("setpriv", "--pdeathsig", "KILL", "--")
"""The switch ends with the launcher, and a torchrun that has lost it waits for its peers for a quarter of an hour."""


class HostsLaunch(Launch):
    """A launch of one torchrun on each emulated host, as on the nodes of a cluster.

    Before they start, what each host's line carries is measured. The hosts share out the cores of this machine.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._host_of: dict[int, int] = {}

    def __enter__(self) -> HostsLaunch:
        with ExitStack() as stack:
            self._hosts = stack.enter_context(Hosts(_network(self._jobs[0].case.cluster.name)))
            self._measured_gbps = measure(self._hosts)
            super().__enter__()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        with self._stack:
            super().__exit__(*error)

    @property
    def note(self) -> str:
        """The measured rates; a warning when the lines are slower than asked for."""
        network, low, high = self._hosts.network, min(self._measured_gbps), max(self._measured_gbps)
        text = f"emulated: {network.hosts} hosts at {network.gbps:g} Gbit/s, measured {low:.3g} to {high:.3g}"
        slow = "; warning: the machine is too slow for this rate, rows show what it reached"
        return text + slow if too_slow(network, self._measured_gbps) else text

    def row(self, job: Job, code: Mapping[str, Any]) -> Row:
        """Return the row of a finished job; its manifest holds the network, as asked for and as measured."""
        row = collect(job, "emulated", code, settings(job.case.threads, INTERFACE))
        network = self._hosts.network
        said = {
            "hosts": network.hosts,
            "link_gbps": network.gbps,
            "measured_link_gbps": self._measured_gbps,
            "burst_bytes": network.burst_bytes,
        }
        return replace(row, manifest={**row.manifest, "network": said})

    def _commands(self, batch: Path) -> Iterator[tuple[list[str], dict[str, str]]]:
        variables = settings(self._jobs[0].case.threads, INTERFACE)
        for host, cores in enumerate(core_shares(self._nodes())):
            agent = [*self._torchrun(self._hosts.address(0), _PORT), f"--node-rank={host}", *worker(batch)]
            with Place(tuple(cores)).entered():  # whoever asks for the next command has started this one by then
                yield self._hosts.inside(host, [*_DIES_WITH_LAUNCHER, sys.executable, *agent]), variables

    def _nodes(self) -> int:
        return self._hosts.network.hosts

    def _remember(self, pids: Sequence[int]) -> None:
        super()._remember(pids)
        self._host_of |= {pid: host for pid in pids if (host := self._hosts.holding(pid)) is not None}

    def _diagnose(self, job: Job, codes: Sequence[int | None], ended: Collection[int] = ()) -> Failure:
        lost = next((host for host, code in enumerate(codes) if code is not None and code < 0), None)
        if lost is None:
            return diagnose(job, 1, ended)
        beats = job.beats()
        ranks = sorted(rank for rank, beat in beats.items() if self._host_of.get(beat.pid) == lost)
        first = beats[ranks[0]] if ranks else Beat(0, 0, "setup")
        which = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
        text = f"host {lost} was lost, with {which}, in {first.phase} at step {first.step}"
        return Failure(None, first.phase, first.step, text)


class Netns(Torchrun):
    """Runs each case like Torchrun, but spread over the emulated hosts of its cluster."""

    name = "netns"
    summary = "real processes on emulated hosts with shaped links, on this machine"
    kind = "emulated"
    _starts = HostsLaunch


def _network(cluster: str) -> Network:
    network = Network.here(cluster)
    if network is None:
        raise ConfigError(f"cluster={cluster} is not an emulated one; use cluster=emulated_2x1gbit, or engine=torchrun")
    return network


engines.add(Netns())
