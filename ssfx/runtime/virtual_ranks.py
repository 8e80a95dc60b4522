"""virtual_ranks(): a training function run on P ranks of one process, with the results of P real ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ssfx.collectives.comm import Comm
from ssfx.collectives.local_comm import World
from ssfx.core.errors import ConfigError


def virtual_ranks(
    train: Callable[[int, Comm], Any], ranks: int, *, device: torch.device | str = "cpu"
) -> list[Any]:  # fmt: skip
    """Call train(rank, comm) for each of so many virtual ranks of this process; return what they return, by rank.

    `train` builds its model and calls `ssfx.attach(model, optimizer, comm=comm, ...)`. Ranks take turns, so nothing
    runs faster; weights, losses and residuals equal those of as many processes over gloo in every bit. Each
    rank begins with the random state of the caller and has its own from there. `device`: where the models will be.
    An error of a rank ends all of them and is raised with the rank's number, once no thread is left: ConfigError and
    RunError as such, others as RunError.
    """
    if ranks < 1:
        raise ConfigError(f"virtual_ranks needs at least one rank, got {ranks}")
    return World(ranks, torch.device(device)).run(lambda comm: train(comm.rank, comm))
