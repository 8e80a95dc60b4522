"""Caches as a backward pass leaves them: what a measurement runs before every call that it times.

In training, the runtime's code and a compressor's run between the kernels of a model's layers. These leave little of
them in a core's caches, translation buffers and branch history, for any data: a call that takes 20
microseconds in a loop takes 150 between two layers. Reading much other memory makes the data cold, but not the code.

Data is cold, too, when it was not touched for a whole step, as the memory of error feedback: a step moves more than
the largest cache holds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from time import thread_time

import torch

_LAST_CACHE = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
_INPUTS = (16, 16, 28, 28)
_LAST_CACHE_BYTES = 32 * 2**20
"""Of a machine that does not say."""


def cold_s(work: Callable[[], object]) -> float:
    """Return the CPU seconds that `work` takes this thread right after a layer's forward and backward pass."""
    between_layers()
    return cpu_s(work)


def cpu_s(work: Callable[[], object]) -> float:
    """Return the CPU seconds that `work` takes this thread."""
    began = thread_time()
    work()
    return thread_time() - began


def between_layers() -> None:
    """Caches are those of a thread that has just run a convolutional layer, of some megabytes of activations."""
    layer, inputs = _layer()
    with torch.enable_grad():
        layer(inputs).sum().backward()


def forget_data() -> None:
    """No cache holds what was touched before: as much other memory as the largest one has was read."""
    _other().sum()


@cache
def _layer() -> tuple[torch.nn.Module, torch.Tensor]:
    width = _INPUTS[1]
    layer = torch.nn.Sequential(
        torch.nn.Conv2d(width, width, 3, padding=1), torch.nn.BatchNorm2d(width), torch.nn.ReLU()
    )
    return layer, torch.zeros(_INPUTS, dtype=torch.float32, requires_grad=True)


@cache
def _other() -> torch.Tensor:
    try:
        size = 2**10 * int(_LAST_CACHE.read_text().strip().removesuffix("K"))
    except (OSError, ValueError):
        size = _LAST_CACHE_BYTES
    return torch.ones(size // 4, dtype=torch.float32)
