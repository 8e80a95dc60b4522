"""Compiled selection and statistics over all segments of a batch, and a plain-torch path beside them as the oracle.

`kernels(device)` returns the module that works where the tensors are. All of them offer the same functions with the
same results; `reference` is the slow and obvious one.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch

__all__ = ["Bound", "Form", "Moments", "Rule", "Tail", "kernels", "plain_torch", "quantizers"]

READY, COPY, RESIDUAL, DGC, NESTEROV = range(5)
"""How a tensor is accumulated: there already; the gradient; decay * old + gain * gradient; the two DGC memories."""

_plain = False


class Form(NamedTuple):
    """How a memory accumulates, in a form that a kernel can do on the way; for DGC `decay` is the momentum.

    `clear`: what is sent leaves the first buffer, and nothing else happens, so that the kernel may do that too where
    values travel unrounded; `mask`: the second buffer is cleared there as well.
    """

    kind: int
    decay: float = 0.0
    gain: float = 1.0
    clear: bool = False
    mask: bool = False


class Bound(NamedTuple):
    """How many elements of one segment may be selected.

    Fewer than `least` above the threshold: exactly `wanted` are chosen instead. More than `most`: cut to the largest.
    """

    least: int
    wanted: int
    most: int


@dataclass(frozen=True)
class Rule:
    """What is selected from each segment.

    `zeros`: zeros may fill up an exact choice. `rotate`: where no magnitude reaches the threshold and not all are zero,
    `wanted` positions from an offset that moves with the step are sent. `tail`: samples that a sampled threshold should
    have above it; None if the choice is exact anyway and the sample only has to save work.
    """

    bounds: tuple[Bound, ...]
    zeros: bool = False
    rotate: bool = False
    tail: int | None = None
    sample_fraction: float = 0.0


@dataclass(frozen=True)
class Moments:
    """Sums over each segment, float64 [S]: a, a^2, |a|, the largest |a|, and the number of non-zeros."""

    total: torch.Tensor
    square: torch.Tensor
    absolute: torch.Tensor
    largest: torch.Tensor
    nonzero: torch.Tensor


@dataclass(frozen=True)
class Tail:
    """Of each segment's magnitudes that reach a threshold, float64 [S]: number, sum, sum of squares, the smallest."""

    count: torch.Tensor
    total: torch.Tensor
    square: torch.Tensor
    least: torch.Tensor


@functools.cache
def _triton_works() -> bool:
    """Return whether Triton is installed and new enough; older ones lack histograms with a mask."""
    from importlib import metadata  # slow to import, and `ssfx list` imports this file

    try:
        major, minor = metadata.version("triton").split(".")[:2]
    except metadata.PackageNotFoundError:
        return False
    return (int(major), int(minor)) >= (3, 4)


def kernels(device: torch.device) -> ModuleType:
    """Return the module whose functions work on tensors of `device`."""
    if not _plain and device.type == "cpu":
        from ssfx.kernels.cpu import backend as cpu

        return cpu
    if not _plain and device.type == "cuda" and _triton_works():
        from ssfx.kernels.triton import backend as cuda

        return cuda
    from ssfx.kernels.reference import backend as reference

    return reference


def writes_sums(device: torch.device) -> bool:
    """Return whether `ssfx.kernels.cpu.decode` can be used for tensors of `device`."""
    return not _plain and device.type == "cpu"


def quantizers(device: torch.device) -> ModuleType:
    """Return the module that packs and unpacks codes of a few bits on `device`."""
    if _plain or device.type != "cpu":
        from ssfx.kernels.reference import pack as pack_reference

        return pack_reference
    from ssfx.kernels.cpu import quantize

    return quantize


@contextmanager
def plain_torch() -> Iterator[None]:
    """Inside the block every device uses the plain-torch path, for comparison."""
    global _plain
    before, _plain = _plain, True
    try:
        yield
    finally:
        _plain = before
