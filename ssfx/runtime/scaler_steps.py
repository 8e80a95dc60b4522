"""Steps that a GradScaler leaves out on one rank count, or ranks would come to their exchanges after other steps."""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol
from weakref import WeakKeyDictionary, WeakSet

import torch


class Counts(Protocol):
    """An exchange that counts the steps of its optimizer."""

    optimizer: torch.optim.Optimizer
    step: int
    skipped_steps: int

    def after_step(self) -> None:
        """Count a step."""


_scalers: WeakKeyDictionary[torch.amp.GradScaler, WeakSet[Any]] = WeakKeyDictionary()
"""By scaler, the exchanges that count what it leaves out."""


def watch(scaler: torch.amp.GradScaler, sync: Counts) -> None:
    """Count steps that `scaler` leaves out, too."""
    watching = _scalers.get(scaler)
    if watching is None:
        watching = _scalers[scaler] = WeakSet()
        scaler.step = partial(_step_of, scaler.step, watching)  # type: ignore[method-assign]
    watching.add(sync)


def leave(scaler: torch.amp.GradScaler, sync: Counts) -> None:
    """Count no more; a scaler that nothing watches steps by its own method again."""
    if (watching := _scalers.get(scaler)) is not None:
        watching.discard(sync)
        if not watching:
            del _scalers[scaler], scaler.step


def _step_of(
    step: Callable[..., Any], watching: WeakSet[Any], optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any
) -> Any:
    """Step as the scaler does, and let the exchange of `optimizer` know where it does not."""
    syncs = [sync for sync in watching if sync.optimizer is optimizer]
    before = [sync.step for sync in syncs]
    found = step(optimizer, *args, **kwargs)
    for sync, steps in zip(syncs, before, strict=True):
        if sync.step == steps:
            sync.skipped_steps += 1
            sync.after_step()
    return found
