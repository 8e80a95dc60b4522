"""The netns engine: real processes on several emulated hosts with shaped lines, all on this machine."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from ssfx.core.errors import ConfigError
from ssfx.core.machine import core_shares
from ssfx.core.rows import Row
from ssfx.lab.engines.base import engines
from ssfx.lab.engines.collect import collect
from ssfx.lab.engines.failure import Failure, diagnose
from ssfx.lab.engines.hosts import INTERFACE, Hosts, Network, missing
from ssfx.lab.engines.job import Job
from ssfx.lab.engines.launch import Launch, settings, worker
from ssfx.lab.engines.line_rate import measure, too_slow
from ssfx.lab.engines.places import Place
from ssfx.lab.engines.torchrun import Torchrun
from ssfx.lab.worker.heartbeat import Beat

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack:
            super().__exit__(kind, error, trace)

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
            "hosts": network.hosts, "link_gbps": network.gbps, "measured_link_gbps": self._measured_gbps,
            "burst_bytes": network.burst_bytes,
        }  # fmt: skip
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
    network = Network.of(cluster)
    if network is None:
        raise ConfigError(f"cluster={cluster} is not an emulated one; use cluster=emulated_2x1gbit, or engine=torchrun")
    if problem := missing():
        raise ConfigError(f"cluster={cluster} cannot be emulated here, {problem}; use cluster=local")
    return network


engines.add(Netns())
