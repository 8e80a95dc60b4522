"""The process of all virtual ranks: it works through a batch of cases as `worker.rank` does, its ranks take turns.

`python -m ssfx.lab.worker.virtual batch.json`. Every rank leaves the same files as one with a process of its own.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from ssfx.advice.cases import planning_inputs
from ssfx.collectives.comm import Comm
from ssfx.collectives.local_comm import World
from ssfx.core import accelerator
from ssfx.lab.worker.rank import RankRun, read_batch, watch_kernels
from ssfx.lab.worker.stop import StopRequests, die_with_launcher
from ssfx.lab.workloads.record import StepRecord
from ssfx.lab.workloads.train import StoppedAtCheckpoint
from ssfx.schemes import schemes


def main(batch_file: str) -> None:
    """Run every case of the batch; end the process with code 1 at the first failure."""
    batch = read_batch(batch_file)
    die_with_launcher()
    running: list[VirtualRank] = []

    def compiling(starts: bool) -> None:
        for task in running[-1:]:
            task.compiling(starts)

    watch_kernels(batch["jobs"], compiling)
    try:
        for job in batch["jobs"]:
            if not _run(job, batch["train"], running):
                break
    except BaseException:
        traceback.print_exc()  # a rank that fails writes failure-rankN.json; an error outside of ranks is only here
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)  # nothing is worth the seconds that an orderly end of torch takes


def _run(job: Mapping[str, Any], train: str, running: list[VirtualRank]) -> bool:
    """Train one case on all its ranks; return False where they stopped at a checkpoint."""
    case = VirtualRank(job, 0).case
    device = torch.device("cpu") if case.virtual == "cpu" else accelerator.use(case.virtual, 0)

    def work(comm: Comm) -> bool:
        task = VirtualRank(job, comm.rank, comm)
        running.append(task)
        try:
            task.run(train)
        except StoppedAtCheckpoint as stopped:
            task.stopped(stopped.step)
            return False
        except Exception as error:
            task.fail(error)
            raise
        return True

    return all(World(case.trained_ranks, device).run(work))


class VirtualRank(RankRun):
    """One case on one virtual rank."""

    def __init__(self, job: Mapping[str, Any], rank: int, comm: Comm | None = None) -> None:
        super().__init__(job, rank)
        self._comm = comm

    def _train(self, train: Callable[..., Any], on_step: Callable[[StepRecord], bool]) -> Any:
        # For the training loop this is a case of that many ranks on the device that is here.
        here = replace(self.case, world_size=self.case.trained_ranks, device=self.case.trains_on)
        self._where = {"comm": self._comm}
        if not schemes[self.case.scheme].in_rounds:  # these plan by neither
            self._where["profile"], self._where["costs"] = planning_inputs(self.case)
        return train(here, on_step, self._attach, checkpoint_dir=self.run_dir / "checkpoint", comm=self._comm)

    def _requests(self) -> StopRequests:
        return StopRequests(self.attempt_dir, self.rank)

    def _wait_for(self, kind: str) -> None:
        """Do not wait: the process ends when all ranks have."""
        self._drop_stacks()


if __name__ == "__main__":
    main(sys.argv[1])
