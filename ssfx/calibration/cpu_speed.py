"""How fast this machine computes here and now: the CPU seconds of a piece of work that is always the same.

A shared machine has several paces and changes between them within seconds or for hours. What was measured at one of
them is put beside what was measured at another by the yardstick of both (docs/calibration.md).
"""

from __future__ import annotations

from functools import cache
from statistics import median
from time import thread_time

from ssfx.core.lazy import torch

_INPUTS = (16, 16, 28, 28)
_USUAL, _AROUND = 31, 4


def yardstick_s() -> float:
    """Return the CPU seconds that a convolutional layer, forward and backward, of some megabytes takes this thread.

    Not the first time, which depends on what the caches hold of it.
    """
    run_layer()
    began_s = thread_time()
    run_layer()
    return thread_time() - began_s


def run_layer() -> None:
    """The caches are those of a thread that has just run this layer."""
    layer, inputs = _layer()
    with torch.enable_grad():
        layer(inputs).sum().backward()


@cache
def usual_s() -> float:
    """Return the yardstick of this process, the median of its first ones: what all it measures is told for."""
    return median(yardstick_s() for _ in range(_USUAL))


class Meanwhile:
    """The pace of the machine while a block runs, by yardsticks just before and after it."""

    def __enter__(self) -> Meanwhile:
        self._found_s = [yardstick_s() for _ in range(_AROUND)]
        return self

    def __exit__(self, *_: object) -> None:
        self._found_s += [yardstick_s() for _ in range(_AROUND)]

    @property
    def to_usual(self) -> float:
        """What to multiply the block's seconds of computing with: then they are those of the process's yardstick."""
        return usual_s() / median(self._found_s)


@cache
def _layer() -> tuple[torch.nn.Module, torch.Tensor]:
    width = _INPUTS[1]
    layer = torch.nn.Sequential(
        torch.nn.Conv2d(width, width, 3, padding=1), torch.nn.BatchNorm2d(width), torch.nn.ReLU()
    )
    return layer, torch.zeros(_INPUTS, requires_grad=True)
