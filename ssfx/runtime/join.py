"""Ranks with unequal numbers of batches: who has no more takes part with zeros until all are done.

The protocol is torch's: `with Join([sync]):` around the loop, or `with sync.join():`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.algorithms.join import Join, Joinable, JoinHook

from ssfx.core.errors import ConfigError
from ssfx.runtime.agreement import check_agreed, optimizer_facts

if TYPE_CHECKING:
    from ssfx.runtime.sync import Sync


class Uneven(Joinable):
    """What torch's `Join` needs of an exchange; `ended_here` is True while this rank has no more batches."""

    def __init__(self) -> None:
        super().__init__()
        self.ended_here = False
        self.divides_by_active = False

    def join(
        self: Any, divide_by_initial_world_size: bool = True, enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> AbstractContextManager[Any]:  # fmt: skip
        """Return the context for a loop whose number of batches differs by rank; arguments as of DDP's `join`."""
        if self.comm.world_size == 1:
            return nullcontext()
        return Join(
            [self], enable, throw_on_early_termination, divide_by_initial_world_size=divide_by_initial_world_size
        )

    def join_hook(self: Any, **arguments: Any) -> JoinHook:
        """Return what a rank does that has no more batches: it exchanges zeros and steps until all ranks are done.

        Averages are over all ranks as before, or, with `divide_by_initial_world_size=False`, over those that still
        train. In the end every rank has the parameters, buffers and optimizer states of the last one that trained;
        ConfigError if optimizers are set differently then, and for arguments that DDP's `join` does not have.
        """
        if self.comm.serial:
            raise ConfigError("join() needs real ranks; give all virtual ranks as many batches")
        if unknown := arguments.keys() - {"divide_by_initial_world_size"}:
            raise ConfigError(f"join takes no {', '.join(sorted(unknown))}; it takes divide_by_initial_world_size")
        self.divides_by_active = not arguments.get("divide_by_initial_world_size", True)
        return _Joined(self)

    def share_of_active(self: Any) -> float:
        """Return what averages over all ranks are multiplied by to be averages over the ranks that still train."""
        active = torch.tensor([float(not self.ended_here)], dtype=torch.float32, device=self.comm.device)
        return float(self.comm.world_size / self.comm.all_reduce(active).wait())

    @property
    def join_device(self: Any) -> torch.device:
        """The device of the exchange."""
        device: torch.device = self.comm.device
        return device

    @property
    def join_process_group(self: Any) -> Any:
        """The process group of the exchange."""
        return self.comm.group

    def take_part(self) -> None:
        """Tell ranks that have no more batches that an exchange begins; nothing outside of `join`."""
        if self._join_config.enable and not self.ended_here:
            work = Join.notify_join_context(self)
            if work is not None:
                work.wait()


class _Joined(JoinHook):
    def __init__(self, sync: Sync) -> None:
        self._sync = sync

    def main_hook(self) -> None:
        """One exchange and one step without a batch."""
        sync = self._sync
        sync.ended_here = True
        for group in (group for optimizer in sync.optimizers for group in optimizer.param_groups):
            for p in group["params"]:
                p.grad = None
        sync.synchronize()
        _step_all(sync.optimizers, sync.scaler, sync.comm.device)

    def post_hook(self, is_last_joiner: bool) -> None:
        """All ranks have what the last one has that trained."""
        sync = self._sync
        sync.ended_here = sync.divides_by_active = False
        comm, optimizers = sync.comm, sync.optimizers
        source = torch.tensor([comm.rank if is_last_joiner else -1], device=comm.device)
        comm.all_reduce(source, op="max").wait()
        advice = "set them alike before the join context ends, as with a schedule that steps once an epoch"
        check_agreed(comm, optimizer_facts(optimizers), advice)
        sync.broadcast_from(int(source), list(_states(optimizers)))


def _step_all(
    optimizers: Sequence[torch.optim.Optimizer], scaler: torch.amp.GradScaler | None, device: torch.device
) -> None:
    """Step every optimizer, through the GradScaler if there is one."""
    for optimizer in optimizers:
        if scaler is None:
            optimizer.step()
        else:
            scaler.scale(torch.zeros((), dtype=torch.float32, device=device))  # makes its scale, if no batch did
            scaler.step(optimizer)
    if scaler is not None:
        scaler.update()


def _states(optimizers: Sequence[torch.optim.Optimizer]) -> Iterable[torch.Tensor]:
    for optimizer in optimizers:
        for p in (p for group in optimizer.param_groups for p in group["params"]):
            for _, value in sorted(optimizer.state.get(p, {}).items()):
                if isinstance(value, torch.Tensor):
                    yield value
