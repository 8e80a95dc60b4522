"""One array task of Slurm: one case on the nodes that Slurm allotted, watched from the first of them.

`python -m ssfx.engines.allocation sweep.json NUMBER`. srun starts a torchrun on every node; the results folder must be
on a file system that all of them share, because all that the launcher learns it learns from files.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ssfx.core.case import Case
from ssfx.core.errors import RunError, SsfxError
from ssfx.engines.collect import collect
from ssfx.engines.job import Job
from ssfx.engines.launch import Launch, settings
from ssfx.engines.torchrun import Torchrun
from ssfx.perf_model.cluster_file import cluster_on
from ssfx.results.rows import Row
from ssfx.results.store import Store

_FIRST_PORT, _PORTS = 20_000, 10_000


class NodesLaunch(Launch):
    """A launch on all nodes of the allocation this process runs in."""

    def row(self, job: Job, code: Mapping[str, Any]) -> Row:
        """Return the row of a finished job, which says where it ran; RunError when that is not the case's cluster."""
        nodes = int(os.environ["SLURM_JOB_NUM_NODES"])
        row = collect(job, "measured", code, settings(job.case.threads, None), nodes=nodes)
        cluster = cluster_on(job.case.cluster, job.case.world_size, job.case.device)
        found = sorted({gpu for result in job.results() for gpu in result["gpus"]})
        for gpu in found:
            if cluster.device.partition("_")[0] not in gpu.replace(" ", "").lower():
                raise RunError(
                    f"cluster={cluster.name} has {cluster.device} devices, and Slurm gave {gpu}; choose other nodes "
                    "with SBATCH_CONSTRAINT or SBATCH_PARTITION, or another cluster.device"
                )
        said = {"job": os.environ["SLURM_JOB_ID"], "nodes": nodes}  # not their names: rows are published
        hardware = f"{nodes} x ({row.origin.hardware})" if nodes > 1 else row.origin.hardware
        return replace(row, manifest={**row.manifest, "slurm": said}, origin=replace(row.origin, hardware=hardware))

    def _commands(self, batch: Path) -> Iterator[tuple[list[str], dict[str, str]]]:
        case, nodes = self._jobs[0].case, int(os.environ["SLURM_JOB_NUM_NODES"])
        agent = [
            sys.executable, "-m", "torch.distributed.run", f"--nnodes={nodes}",
            f"--nproc-per-node={case.world_size // nodes}", "--rdzv-backend=static",
            f"--master-addr={socket.gethostname()}",
            f"--master-port={_FIRST_PORT + int(os.environ['SLURM_JOB_ID']) % _PORTS}", "--max-restarts=0",
        ]  # fmt: skip
        worker = ["-m", "ssfx.runtime.worker", str(batch)]
        # Only a shell on the node knows its number there. Ranks bind themselves, so srun must not bind all to one core.
        line = f'exec {shlex.join(agent)} "--node-rank=$SLURM_NODEID" {shlex.join(worker)}'
        srun = [
            "srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", "--cpu-bind=none",
            "--kill-on-bad-exit=1", "bash", "-c", line,
        ]  # fmt: skip
        yield srun, settings(case.threads, None)

    def _remember(self, pids: Sequence[int]) -> None:
        """Ranks are processes of other machines: their numbers mean nothing here, and srun ends them all."""


class Allocation(Torchrun):
    """Runs each case like Torchrun, but on all nodes of a Slurm allocation."""

    name = "slurm"
    summary = "real processes on the nodes of the allocation that this process is in"
    _starts = NodesLaunch


def main(sweep_file: str, number: str) -> int:
    """Run the case of that number; return the exit code: 0, or 1 after saying what went wrong."""
    sweep = json.loads(Path(sweep_file).read_text())
    case = Case.of(sweep["cases"][int(number)])
    try:
        Allocation(sweep["train"]).run([case], Store(Path(sweep["root"])), stall_timeout_s=sweep["stall_timeout_s"])
    except SsfxError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
