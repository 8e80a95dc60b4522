"""Marks in time on the thread that computes: host time on the CPU, events of the current stream on CUDA."""

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import torch

from ssfx.core import accelerator

Mark = Any
"""A moment of one clock: seconds on the CPU, an event on CUDA."""


class Clock:
    """Takes marks without stopping the device; `seconds` between marks may be asked after `wait()`."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._queued = device, accelerator.queued(device)
        self.mark: Callable[[], Mark] = partial(accelerator.event, device, timed=True) if self._queued else perf_counter

    def wait(self) -> None:
        """Return when the device has reached every mark taken so far."""
        accelerator.wait(self._device)

    def seconds(self, start: Mark, end: Mark) -> float:
        """Return the seconds from `start` to `end`."""
        return accelerator.seconds(start, end) if self._queued else float(end - start)
