"""A training function whose exchange can die or hang between two messages of a reducer.

FAKE_FAULT="kill:1:3:2" kills rank 1 in step 3 as it is about to begin its second operation; "hang" stops it there, with
a file HANGS in the run's folder.
"""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ssfx.lab.worker.heartbeat import read_beat
from ssfx.lab.workloads.record import StepRecord
from ssfx.lab.workloads.train import TrainResult


def train(case: Any, on_step: Any, attach: Any, *, checkpoint_dir: Any) -> TrainResult:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 600), torch.nn.Tanh(), torch.nn.Linear(600, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    sync = attach(
        model, optimizer, scheme=case.scheme, compressor=case.compressor, density=case.density, **case.scheme_options
    )
    kind, rank, step, call = os.environ["FAKE_FAULT"].split(":")
    if sync.comm.rank == int(rank):
        break_at(sync, kind, int(step), int(call), checkpoint_dir.parent)
    for step in range(case.steps):
        optimizer.zero_grad()
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(100 * sync.comm.rank + step))
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        times = dict.fromkeys(
            ("iteration_s", "forward_s", "backward_s", "sparsify_s", "exposed_comm_s", "step_s", "other_s", "comm_s"),
            0.1,
        )
        last = sync.last
        on_step(
            StepRecord(
                step=step,
                **times,
                loss=loss.item(),
                contributed_bytes=last.contributed_bytes,
                sent_bytes=last.sent_bytes,
                achieved_density=last.achieved_density,
                tensor_missing_rate=last.tensor_missing_rate,
                skipped=last.skipped,
            )
        )
    sync.detach()
    return TrainResult({"skipped_steps": sync.skipped_steps}, "0123456789abcdef", 0, ())


def break_at(sync: Any, kind: str, step: int, call: int, run_dir: Path) -> None:
    """Make this rank's operation number `call` of `step` its last; its training thread is in the exchange by then."""
    begun = [-1, 0]  # the step, and how many operations it has begun

    def counting(operation: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            begun[:] = [sync.step, begun[1] + 1 if begun[0] == sync.step else 1]
            if begun == [step, call]:
                while read_beat(run_dir / "attempt-1", sync.comm.rank).phase != "exchange":
                    time.sleep(0.01)
                if kind == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                (run_dir / "HANGS").touch()
                hang()
            return operation(*args, **options)

        return counted

    for name in ("all_reduce", "all_gather", "broadcast", "swap"):
        setattr(sync.comm, name, counting(getattr(sync.comm, name)))


def hang() -> None:
    while True:
        time.sleep(60)
