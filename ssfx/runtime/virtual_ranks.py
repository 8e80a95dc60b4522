"""virtual_ranks(): a training function run on P ranks of one process, with the results of P real ones.

Ranks end every step with the same averages, so their weights are the same numbers P times. After share_weights() they
are in memory once, and rank 0's optimizer moves them for all, so that models of real size fit. What differs by rank
stays apart: gradients, residuals, compressors, buffers such as running statistics, random numbers. What else a script
does to the weights would happen P times, and is refused.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from ssfx.collectives.comm import Comm
from ssfx.collectives.local_comm import LocalComm, World
from ssfx.core.errors import ConfigError
from ssfx.runtime.parted import fingerprint


def virtual_ranks(train: Callable[[int, Comm], Any], ranks: int, *, device: torch.device | str = "cpu") -> list[Any]:
    """Call train(rank, comm) for each of so many virtual ranks of this process; return what they return, by rank.

    `train` builds its model and calls `ssfx.attach(model, optimizer, comm=comm, ...)`, in a thread of the rank's own,
    where `attach` finds `comm` by itself. Ranks take turns, so nothing
    runs faster; weights, losses and residuals equal those of as many processes over gloo in every bit. Each
    rank begins with the random state of the caller and has its own from there. `device`: where the models will be.
    An error of a rank ends all of them and is raised with the rank's number, once no thread is left: ConfigError and
    RunError as such, others as RunError.
    """
    if not isinstance(ranks, int) or ranks < 1:
        raise ConfigError(f"virtual_ranks needs the number of ranks, at least one rank, got {ranks!r:.60}")
    return World(ranks, torch.device(device)).run(lambda comm: train(comm.rank, comm))


def share_weights(model: torch.nn.Module, optimizer: torch.optim.Optimizer, comm: Comm) -> None:
    """The virtual ranks of `comm` have one set of weights and of optimizer state from now on; call it before `attach`.

    All ranks call it with equal models. P ranks take the memory of the weights, of the optimizer's state and of P times
    gradients and residuals, and reach the same as ranks with weights of their own in every bit. ConfigError for real
    ranks, for an optimizer with a schedule already, whose step cannot be replaced, and, at the next exchange or step,
    where the first exchange is over and anything but that step has changed the weights.
    """
    if not isinstance(comm, LocalComm):
        raise ConfigError("only virtual ranks are in one process and can share weights; drop share_weights")
    if "step" in vars(optimizer):
        raise ConfigError("something, a schedule perhaps, has replaced optimizer.step; share weights before that")
    own = list(model.parameters())
    weights: list[torch.Tensor] = comm.shared([p.data for p in own])
    if [p.shape for p in own] != [one.shape for one in weights]:
        raise ConfigError(f"rank {comm.rank} and rank 0 have other models, which cannot share weights")
    for param, data in zip(own, weights, strict=True):
        param.data = data
    left: _AsLeft = comm.shared(_AsLeft(weights))
    comm.world.looks[comm.rank].append(partial(left.look, own))
    optimizer.__class__ = _in_turn(type(optimizer), comm)
    optimizer._patch_step_function()


class _AsLeft:
    """Looks whether shared weights are as the last step left them, by bits: writes by `.data` leave no version."""

    def __init__(self, weights: list[torch.Tensor]) -> None:
        self._weights = weights
        self._seen: list[int] = []

    def look(self, own: list[torch.nn.Parameter], *, stepped: bool = False) -> None:
        """Raise ConfigError if a rank's `own` weights are others, or have changed since; the first look notes them.

        `stepped`: an optimizer has just stepped, so that they may have.
        """
        now = self._bits()
        elsewhere = any(p.data_ptr() != one.data_ptr() for p, one in zip(own, self._weights, strict=True))
        if elsewhere or (self._seen not in ([], now) and not stepped):
            raise ConfigError(
                "weights that virtual ranks share were changed outside of optimizer.step() (decay, noise, SAM, a load "
                "or a clamp by hand?), which every rank would do again; do it in the optimizer, or drop share_weights"
            )
        self._seen = now

    def _bits(self) -> list[int]:
        return [int(fingerprint(one)) for one in self._weights]


def _in_turn(kind: Any, comm: LocalComm) -> Any:
    """Return a kind of optimizer, of the same name, whose step is rank 0's alone, between the passes of all ranks."""
    step: Callable[..., Any] = getattr(kind.step, "__wrapped__", kind.step)  # without the hooks, which run once

    def in_turn(self: torch.optim.Optimizer, closure: Callable[[], Any] | None = None) -> None:
        """Do nothing on ranks other than 0; ConfigError for a closure, whose passes would be between updates."""
        if closure is not None:
            raise ConfigError("virtual ranks that share weights cannot step with a closure; give them their own")
        comm.meet()  # every rank has done with the weights as they are
        if comm.rank == 0:
            comm.begins()
            step(self)
            for look in comm.world.looks[0]:  # another optimizer may hold other weights of the same model
                look(stepped=True)
        comm.meet()

    return type(kind.__name__, (kind,), {"step": in_turn})
