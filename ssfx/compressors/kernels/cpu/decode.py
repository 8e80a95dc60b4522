"""Decoding gathered (index, value) pairs straight into gradients, compiled: a cache-sized chunk at a time.

The plain path zeroes a vector, adds every rank's pairs at random places of it and copies it into the gradients: three
passes, the second with a cache miss per pair. Here every chunk is zeroed, receives all ranks' pairs that fall into it,
which lie one after the other because rows ascend, and is written once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import carray

from ssfx.compressors.kernels.cpu.jit import compiled
from ssfx.compressors.kernels.cpu.vector import floats_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ssfx.core.lazy import torch

CHUNK = 8192
"""Elements that are zeroed and filled while they lie in the first-level cache."""


def write_sums(
    targets: Sequence[torch.Tensor], starts: Sequence[int], indices: NDArray[np.int32], values: NDArray[np.float32]
) -> None:
    """Every target holds the sum over rows of the values at its positions, rows added in order, and zeros elsewhere.

    targets: contiguous float32 tensors on the CPU, in ascending order of `starts`, their first positions. indices,
    values: [rows, entries]; a row's positions ascend, but for padding of value 0, whose position is below or at the
    start of the run it follows.
    """
    pieces = np.array([(t.data_ptr(), at, at + t.numel()) for t, at in zip(targets, starts, strict=True)], np.int64)
    _write_sums(pieces.reshape(-1, 3), indices, values, np.zeros(len(indices), np.int64))


@compiled()
def _write_sums(pieces, indices, values, cursors):  # type: ignore[no-untyped-def]
    entries = indices.shape[1]
    for piece in pieces:
        start, end = piece[1], piece[2]
        target = carray(floats_at(piece[0]), end - start)
        for lo in range(start, end, CHUNK):
            hi = min(lo + CHUNK, end)
            target[lo - start : hi - start] = 0
            for row in range(len(indices)):
                at = cursors[row]
                while at < entries and indices[row, at] < hi:
                    if indices[row, at] >= lo:
                        target[indices[row, at] - start] += values[row, at]
                    at += 1
                cursors[row] = at
