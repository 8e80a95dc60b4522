"""A training function that takes milliseconds a step, with the real exchange, for tests of the launcher.

FAKE_STEP_S seconds precede each step; the third and later ones wait until there is a file FAKE_HOLD, whose name may
hold {run}. A checkpoint holds no more than the number of steps done.
"""

import os
import signal
import time
from pathlib import Path

import torch
import torch.distributed as dist

from ssfx.collectives.torch_comm import TorchComm
from ssfx.core.files import write_atomic
from ssfx.lab.workloads.checkpoint import Checkpoints
from ssfx.lab.workloads.record import StepRecord
from ssfx.lab.workloads.train import StoppedAtCheckpoint, TrainResult


def train(case, on_step, attach, *, checkpoint_dir):
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    sync = attach(model, optimizer, scheme="ddp")
    pause_s = float(os.environ.get("FAKE_STEP_S", "0"))
    hold = Path(os.environ.get("FAKE_HOLD", os.devnull).format(run=case.run_id))
    ranks = {"rank": dist.get_rank(), "world_size": case.world_size, "comm": TorchComm(dist.group.WORLD)}
    checkpoints = Checkpoints(checkpoint_dir, {"run": case.run_id}, **ranks)
    first = checkpoints.load().step
    for step in range(first, case.steps):
        time.sleep(pause_s)
        while step > 1 and not hold.exists():
            time.sleep(0.02)
        optimizer.zero_grad()
        loss = model(torch.ones(4, 8)).square().mean()
        loss.backward()
        skipped = sync.last is not None and sync.last.skipped
        if not skipped:
            optimizer.step()
        times = {"iteration_s": 0.5 + step, "forward_s": 0.1, "backward_s": 0.2, "sparsify_s": 0.0}
        waits = {"exposed_comm_s": 0.05, "step_s": 0.05, "other_s": 0.1, "comm_s": 0.1}
        value = loss.item()
        stop = on_step(
            StepRecord(
                step=step,
                **times,
                **waits,
                loss=value if value == value else None,
                contributed_bytes=360,
                sent_bytes=360,
                achieved_density=1.0,
                tensor_missing_rate=None,
                skipped=skipped,
            )
        )
        if stop:
            checkpoints.save(step + 1, {"step": step + 1})
            raise StoppedAtCheckpoint(step + 1)
    sync.detach()
    return TrainResult({"skipped_steps": sync.skipped_steps, "top1": 0.5}, "0123456789abcdef", first, ())


def killed_while_it_writes(case, on_step, attach, *, checkpoint_dir):
    """Rank 1 is killed with half of a file written, beside its step log."""
    if dist.get_rank() == 1:
        folder = checkpoint_dir.parent / "attempt-1"
        os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
        write_atomic(folder / "half.json", "{}")
    return train(case, on_step, attach, checkpoint_dir=checkpoint_dir)
