"""Marks in time on the thread that computes: host time on the CPU, events of the current stream on CUDA."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch

Mark = Any
"""A moment of one clock: seconds on the CPU, an event on CUDA."""


class Clock:
    """Takes marks without stopping the device; `seconds` between marks may be asked after `wait()`."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._device = device
        self.mark: Callable[[], Mark] = self._event if self._cuda else perf_counter

    def wait(self) -> None:
        """Return when the device has reached every mark taken so far."""
        if self._cuda:
            torch.cuda.synchronize(self._device)

    def seconds(self, start: Mark, end: Mark) -> float:
        """Return the seconds from `start` to `end`."""
        return float(start.elapsed_time(end) / 1e3 if self._cuda else end - start)

    def _event(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event
