"""A training function that takes milliseconds a step, with the real exchange, for tests of the launcher.

FAKE_STEP_S seconds precede each step; the third and later ones wait until there is a file FAKE_HOLD.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch

from ssfx.workloads.record import StepRecord
from ssfx.workloads.train import TrainResult


def train(case, on_step, attach, *, checkpoint_dir):
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    sync = attach(model, optimizer, scheme="ddp")
    pause_s = float(os.environ.get("FAKE_STEP_S", "0"))
    hold = Path(os.environ.get("FAKE_HOLD", os.devnull))
    for step in range(case.steps):
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
        on_step(
            StepRecord(
                step=step, **times, **waits, loss=value if value == value else None, contributed_bytes=360,
                sent_bytes=360, achieved_density=1.0, tensor_missing_rate=None, skipped=skipped,
            )
        )  # fmt: skip
    sync.detach()
    return TrainResult({"skipped_steps": sync.skipped_steps, "top1": 0.5}, "0123456789abcdef", 0, ())
