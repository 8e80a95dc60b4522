"""All ranks stop after the same step, whichever of them is asked and whenever."""

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from runtime.pool import Pools

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


@pytest.mark.parametrize("one_machine", [True, False], ids=["file", "store"])
def test_all_ranks_stop_after_the_same_step(pool: Pools, tmp_path, one_machine):
    for seed in range(12):
        folder = tmp_path / f"run-{one_machine}" / f"attempt-{seed}"
        folder.mkdir(parents=True)
        world = 1 + seed % 4
        found = pool.run(last_step, world, str(folder), seed, one_machine, seed % 3 == 0)
        assert len(set(found)) == 1, (seed, found)
        assert found[0] < 25 < STEPS
