"""The process group that should be there: `attach` before `init_process_group` would train every rank for itself."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist

from ssfx.core.errors import ConfigError

_OF_LAUNCHERS = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
"""What srun, Open MPI and other launchers of MPI tell a process; torch itself reads WORLD_SIZE and RANK only."""


def check_group(process_group: Any) -> None:
    """Raise ConfigError if the environment says that there are several ranks, and no process group exists."""
    if process_group is not None and not isinstance(process_group, dist.ProcessGroup):
        raise ConfigError(
            f"process_group is what torch.distributed.new_group returns, got {process_group!r}; leave it out for all"
        )
    if process_group is not None or dist.is_initialized():
        return
    if reason := several_ranks(os.environ):
        raise ConfigError(
            f"{reason}, but no process group exists, so every rank would train for itself; call "
            "torch.distributed.init_process_group before ssfx.attach (to train alone, set WORLD_SIZE=1)"
        )


def several_ranks(environment: Mapping[str, str]) -> str:
    """Return the variable that says that this process is one of several ranks, as text; "" if none does.

    WORLD_SIZE, or RANK where that is missing, counts before what launchers other than torch's set.
    """
    size, rank = _number(environment, "WORLD_SIZE"), _number(environment, "RANK")
    if size is not None:
        return f"WORLD_SIZE={size}" if size > 1 else ""
    if rank is not None:
        return f"RANK={rank}" if rank > 0 else ""
    for name in _OF_LAUNCHERS:
        if (_number(environment, name) or 0) > 1:
            return f"{name}={environment[name]}"
    return ""


def _number(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "").strip()
    return int(text) if text.isdecimal() else None


class LoneRank:
    """Watches an exchange that was attached without a process group for a group of several ranks that comes later.

    ConfigError in the first backward pass, or in any step of an optimizer, once there is such a group.
    """

    def __init__(
        self, params: Iterable[torch.nn.Parameter], optimizers: Iterable[torch.optim.Optimizer], process_group: Any
    ) -> None:
        self._handles: list[Any] = []
        self._first: list[Any] = []
        if process_group is not None or dist.is_initialized():
            return
        self._first = [p.register_post_accumulate_grad_hook(lambda _: self._check()) for p in params]
        self._handles = [optimizer.register_step_pre_hook(lambda *_: self._step()) for optimizer in optimizers]

    def _check(self) -> None:
        if dist.is_initialized() and dist.get_world_size() > 1:
            raise ConfigError(
                "the process group was made after ssfx.attach, which therefore exchanges nothing; "
                "call torch.distributed.init_process_group before ssfx.attach"
            )

    def _step(self) -> None:
        self._check()
        _remove(self._first)

    def close(self) -> None:
        """Stop watching."""
        _remove(self._first)
        _remove(self._handles)


def _remove(handles: list[Any]) -> None:
    for handle in handles:
        handle.remove()
    handles.clear()
