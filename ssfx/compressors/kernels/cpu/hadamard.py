"""Blocks of neighbours turned by a Hadamard matrix, compiled; bit for bit as `kernels.reference.pack.rotate`."""

from __future__ import annotations

import numpy as np

from ssfx.compressors.kernels.cpu.jit import compiled


@compiled()
def rotate_blocks(a, block):  # type: ignore[no-untyped-def]
    """Every whole block of `a` (float32) is its product with the orthogonal Hadamard matrix; a shorter last one stays.

    `block`: a power of two, at least 16. Steps over few neighbours have loops of their own, which vectorise.
    """
    whole = a[: len(a) // block * block]
    _first_two(whole)
    _third(whole)
    _fourth(whole)
    half = 16
    while half < block:
        for first in range(0, len(whole), 2 * half):
            _step(whole[first : first + half], whole[first + half : first + 2 * half])
        half *= 2
    unit = np.float32(1 / np.sqrt(np.float64(block)))
    for i in range(len(whole)):
        whole[i] *= unit


@compiled()
def _first_two(a):  # type: ignore[no-untyped-def]
    for j in range(len(a) // 4):
        left, right = a[4 * j] + a[4 * j + 1], a[4 * j + 2] + a[4 * j + 3]
        less, more = a[4 * j] - a[4 * j + 1], a[4 * j + 2] - a[4 * j + 3]
        a[4 * j], a[4 * j + 1], a[4 * j + 2], a[4 * j + 3] = left + right, less + more, left - right, less - more


@compiled()
def _third(a):  # type: ignore[no-untyped-def]
    for j in range(len(a) // 8):
        for i in range(4):
            left, right = a[8 * j + i], a[8 * j + 4 + i]
            a[8 * j + i], a[8 * j + 4 + i] = left + right, left - right


@compiled()
def _fourth(a):  # type: ignore[no-untyped-def]
    for j in range(len(a) // 16):
        for i in range(8):
            left, right = a[16 * j + i], a[16 * j + 8 + i]
            a[16 * j + i], a[16 * j + 8 + i] = left + right, left - right


@compiled()
def _step(lefts, rights):  # type: ignore[no-untyped-def]
    for i in range(len(lefts)):
        left, right = lefts[i], rights[i]
        lefts[i], rights[i] = left + right, left - right
