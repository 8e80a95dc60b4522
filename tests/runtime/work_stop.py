"""Ranks that are asked to stop while they exchange something in every step."""

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ssfx.lab.worker.stop import REQUEST, StopRequests

STEPS = 400


def last_step(group: Any, rank: int, world: int, folder: str, seed: int, one_machine: bool, by_signal: bool) -> int:
    """Return the step after which this rank stopped; rank, moment and delays are random."""
    together, alone = random.Random(seed), random.Random(f"{seed} {rank}")
    asked_of, asked_after = together.randrange(world), together.randrange(20)
    before = signal.getsignal(signal.SIGUSR1)
    requests = StopRequests(Path(folder), rank, one_machine=one_machine)
    requests.listen()
    try:
        for step in range(STEPS):
            if alone.random() < 0.3:
                time.sleep(alone.random() * 0.002)
            dist.all_reduce(torch.ones(1), group=group)
            if rank == asked_of and step == asked_after:
                if by_signal:
                    os.kill(os.getpid(), signal.SIGUSR1)
                else:
                    (Path(folder) / REQUEST).touch()
            if requests.after(step):
                return step
    finally:
        signal.signal(signal.SIGUSR1, before)
    return STEPS
