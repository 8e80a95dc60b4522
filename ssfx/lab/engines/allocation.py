"""One array task of Slurm: one case on the nodes that Slurm allotted, watched from the first of them.

`python -m ssfx.lab.engines.allocation sweep.json NUMBER`. srun starts a torchrun on every node; the results folder must
be on a file system that all of them share, because all that the launcher learns it learns from files.
"""

import os
import secrets
import shlex
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ssfx.core.case import Case
from ssfx.core.errors import REQUEUE_EXIT_CODE, RequeueError, RunError, SsfxError
from ssfx.core.files import numbered, read_json
from ssfx.core.rows import Row
from ssfx.lab.engines.collect import collect
from ssfx.lab.engines.job import Job
from ssfx.lab.engines.launch import Launch, settings, worker
from ssfx.lab.engines.submission import requeue
from ssfx.lab.engines.torchrun import Torchrun
from ssfx.lab.results.store import Store
from ssfx.perf_model.cluster_file import cluster_on

_PORTS = range(20_000, 30_000)
"""Below those that systems give to outgoing connections."""


class NodesLaunch(Launch):
    """A launch on all nodes of the allocation this process runs in, in a `container` if one is named."""

    def __init__(self, *arguments: Any, container: str | None = None) -> None:
        super().__init__(*arguments)
        self._container = container

    def row(self, job: Job, code: Mapping[str, Any]) -> Row:
        """Return the row of a finished job, which says where it ran; RunError when that is not the case's cluster."""
        nodes = self._nodes()
        row = collect(job, "measured", code, self._settings(), nodes=nodes)
        cluster = cluster_on(job.case.cluster, job.case.world_size, job.case.device)
        found = sorted({gpu for result in job.results() for gpu in result["gpus"]})
        for gpu in found:
            if cluster.device.partition("_")[0] not in gpu.replace(" ", "").lower():
                raise RunError(
                    f"cluster={cluster.name} has {cluster.device} devices, and the nodes have {gpu}; choose others "
                    "with SBATCH_CONSTRAINT or SBATCH_PARTITION, or another cluster.device"
                )
        hardware = f"{nodes} x ({row.origin.hardware})" if nodes > 1 else row.origin.hardware
        # not the names of nodes: rows are published
        manifest = {**row.manifest, "slurm": {"job": os.environ["SLURM_JOB_ID"], "nodes": nodes}}
        return replace(row, manifest=manifest, origin=replace(row.origin, hardware=hardware))

    def _commands(self, batch: Path) -> Iterator[tuple[list[str], dict[str, str]]]:
        case, nodes = self._jobs[0].case, self._nodes()
        python, mounted = self._python(case.device == "cuda")
        agent = [*python, *(self._torchrun(socket.gethostname(), free_port()) if nodes > 1 else self._torchrun())]
        # Only a shell on the node has its number. Ranks bind themselves, so srun must not bind all to one core.
        line = f'exec {shlex.join(agent)} "--node-rank=$SLURM_NODEID" {shlex.join(worker(batch))}'
        srun = [
            "srun",
            f"--nodes={nodes}",
            f"--ntasks={nodes}",
            "--ntasks-per-node=1",
            "--cpu-bind=none",
            "--kill-on-bad-exit=1",
            *mounted,
            "bash",
            "-c",
            line,
        ]
        yield srun, self._settings()

    def _nodes(self) -> int:
        return int(os.environ["SLURM_JOB_NUM_NODES"])

    def _settings(self) -> dict[str, str]:
        return settings(self._jobs[0].case.threads, "lo" if self._nodes() == 1 else None)

    def _python(self, gpus: bool) -> tuple[list[str], list[str]]:
        """Return what starts Python on a node, in the container if there is one, and srun's options for that."""
        image, results = self._container, str(self._jobs[0].run_dir.parents[1])
        if image is None:
            return [sys.executable], []
        if image.endswith(".sif"):
            return ["apptainer", "exec", *(["--nv"] if gpus else []), "--bind", results, image, "python"], []
        return ["python"], [f"--container-image={image}", f"--container-mounts={results}:{results}"]

    def _remember(self, pids: Sequence[int]) -> None:
        """Ranks are processes of other machines: their numbers mean nothing here, and srun ends them all."""


def free_port() -> int:
    """Return a random port that is free on this node now."""
    while True:
        with socket.socket() as one, suppress(OSError):
            one.bind(("", port := secrets.choice(_PORTS)))
            return port


class Allocation(Torchrun):
    """Runs each case like Torchrun, but on all nodes of a Slurm allocation."""

    name = "slurm"
    summary = "real processes on the nodes of the allocation that this process is in"

    def __init__(self, train: str, container: str | None = None) -> None:
        super().__init__(train)
        self._starts = partial(NodesLaunch, container=container)


def main(sweep_file: str, number: str) -> int:
    """Run the case of that number; return the exit code: 0, or 1 after saying what went wrong.

    REQUEUE_EXIT_CODE when it stopped at a checkpoint because its time was nearly over; Slurm has it in its queue again.
    """
    sweep = read_json(Path(sweep_file))
    case, store = Case.of(sweep["cases"][int(number)]), Store(Path(sweep["root"]))
    before = _checkpoint(store, case)
    try:
        Allocation(sweep["train"], sweep["container"]).run([case], store, stall_timeout_s=sweep["stall_timeout_s"])
    except RequeueError as error:
        print(error, file=sys.stderr, flush=True)
        if _checkpoint(store, case) == before:  # the next turn would end here, too, and so on for ever
            print("error: no checkpoint since it began: give it more cluster.slurm.time_limit", file=sys.stderr)
            return 1
        requeue(os.environ["SLURM_JOB_ID"])
        return REQUEUE_EXIT_CODE
    except SsfxError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _checkpoint(store: Store, case: Case) -> int:
    """Return the last step that the run has a complete checkpoint of, 0 without any."""
    folder = store.run_dir(case) / "checkpoint"
    return max((step for step in numbered(folder, "step-") if (folder / f"step-{step}/COMPLETE").exists()), default=0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
