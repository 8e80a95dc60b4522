"""Compiled selection and statistics over all segments of a batch, and a plain-torch path beside them as the oracle.

`kernels(device)` returns the module that works where the tensors are. All of them offer the same functions with the
same results; `reference` is the slow and obvious one.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING

from ssfx.compressors.kernels.interface import (
    COPY,
    DGC,
    READY,
    RESIDUAL,
    Bound,
    Coding,
    Form,
    Moments,
    Rows,
    Rule,
    Tail,
)

if TYPE_CHECKING:
    import torch

__all__ = [
    "COPY",
    "DGC",
    "READY",
    "RESIDUAL",
    "Bound",
    "Coding",
    "Form",
    "Moments",
    "Rows",
    "Rule",
    "Tail",
    "kernels",
    "plain_torch",
    "quantizers",
    "writes_sums",
]

_plain = False


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
        from ssfx.compressors.kernels.cpu import backend as cpu

        return cpu
    if not _plain and device.type == "cuda" and _triton_works():
        from ssfx.compressors.kernels.triton import backend as cuda

        return cuda
    from ssfx.compressors.kernels.reference import backend as reference

    return reference


def writes_sums(device: torch.device) -> bool:
    """Return whether `ssfx.compressors.kernels.cpu.decode` can be used for tensors of `device`."""
    return not _plain and device.type == "cpu"


def quantizers(device: torch.device) -> ModuleType:
    """Return the module that packs and unpacks codes of a few bits on `device`."""
    if not _plain and device.type == "cpu":
        from ssfx.compressors.kernels.cpu import quantize

        return quantize
    if not _plain and device.type == "cuda" and _triton_works():
        from ssfx.compressors.kernels.triton import quantize as cuda

        return cuda
    from ssfx.compressors.kernels.reference import pack as pack_reference

    return pack_reference


@contextmanager
def plain_torch() -> Iterator[None]:
    """Inside the block every device uses the plain-torch path, for comparison."""
    global _plain
    before, _plain = _plain, True
    try:
        yield
    finally:
        _plain = before
