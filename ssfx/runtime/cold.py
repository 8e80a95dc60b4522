"""Caches as a backward pass leaves them: what a measurement runs before every call that it times.

In training, the runtime's code and a compressor's run between the kernels of a model's layers. These leave little of
them in a core's caches, translation buffers and branch history, whatever they do to the data: a call that takes 20
microseconds in a loop takes 150 between two layers. Reading much other memory makes the data cold, but not the code.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from time import thread_time

import torch

_INPUTS = (16, 16, 28, 28)


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


@cache
def _layer() -> tuple[torch.nn.Module, torch.Tensor]:
    width = _INPUTS[1]
    layer = torch.nn.Sequential(
        torch.nn.Conv2d(width, width, 3, padding=1), torch.nn.BatchNorm2d(width), torch.nn.ReLU()
    )
    return layer, torch.zeros(_INPUTS, requires_grad=True)
