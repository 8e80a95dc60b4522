"""Blocks of neighbours turned by a Hadamard matrix, compiled; bit for bit as `kernels.reference.pack.rotate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ssfx.compressors.kernels.cpu.jit import compiled

if TYPE_CHECKING:
    import torch


def rotate(a: torch.Tensor, block: int) -> None:
    """Every whole block of `a` is its product with the orthogonal Hadamard matrix; a shorter last one stays."""
    rotate_blocks(a.numpy(), block)


@compiled()
def rotate_blocks(a, block):  # type: ignore[no-untyped-def]
    """Do the same to an array of float32."""
    unit = np.float32(1 / np.sqrt(np.float64(block)))
    for start in range(0, len(a) // block * block, block):
        half = 1
        while half < block:
            for first in range(start, start + block, 2 * half):
                for i in range(first, first + half):
                    left, right = a[i], a[i + half]
                    a[i], a[i + half] = left + right, left - right
            half *= 2
        for i in range(start, start + block):
            a[i] *= unit


@compiled()
def rotated(a, block):  # type: ignore[no-untyped-def]
    """Return what `rotate` makes of `a`, which stays as it is."""
    turned = a.copy()
    rotate_blocks(turned, block)
    return turned
