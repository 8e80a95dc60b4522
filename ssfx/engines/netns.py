"""The netns engine: real processes, one on each of several emulated hosts with shaped lines, all on this machine."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from ssfx.core.errors import ConfigError
from ssfx.engines.base import engines
from ssfx.engines.collect import collect
from ssfx.engines.failure import Failure, diagnose
from ssfx.engines.hosts import INTERFACE, Hosts, Network, missing
from ssfx.engines.job import Job
from ssfx.engines.launch import Launch, settings
from ssfx.engines.line_rate import measure, too_slow
from ssfx.engines.torchrun import Torchrun
from ssfx.results.rows import Row

_PORT = "29500"


class HostsLaunch(Launch):
    """A launch of one rank per emulated host; before they start, what each host's line carries is measured."""

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
        case = self._jobs[0].case
        worker = [sys.executable, "-m", "ssfx.runtime.worker", str(batch)]
        shared = {
            **settings(case.threads, INTERFACE), "WORLD_SIZE": str(case.world_size),
            "LOCAL_WORLD_SIZE": str(case.world_size), "MASTER_ADDR": self._hosts.address(0), "MASTER_PORT": _PORT,
        }  # fmt: skip
        for rank in range(case.world_size):  # whatever hosts are emulated, all ranks share the cores of this machine
            yield self._hosts.inside(rank, worker), {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}

    def _diagnose(self, job: Job, codes: Sequence[int | None], ended: Collection[int] = ()) -> Failure:
        running = [rank for rank, code in enumerate(codes) if code is None]
        return diagnose(job, 1, running, {rank: code for rank, code in enumerate(codes) if code is not None})


class Netns(Torchrun):
    """Runs each case like Torchrun, but one rank on each of the emulated hosts of its cluster."""

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
