"""Two means per column of a matrix, and their decoding: the compiled path of 1-bit SGD's columns.

Rows are contiguous, so a pass over the rows adds to all columns at once, as vector code. Source: D-25.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ssfx.compressors.kernels.cpu.codes import CHUNK, pack_signs, sums_by_sign, unpack
from ssfx.compressors.kernels.cpu.jit import compiled
from ssfx.compressors.kernels.gradients import accumulate

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from ssfx.wire.batch import Batch
    from ssfx.wire.payload import Payload

Matrices = tuple[tuple[int, int, int, int], ...]
"""Of every tensor of a segment: where it begins, rows, columns, and where its scales begin: low means, then high."""
Split = Callable[[tuple[tuple[int, ...], ...]], Matrices]
START, ROWS, COLUMNS, SCALE = range(4)


def column_means(batch: Batch, split: Split) -> None:
    """Codes: 1 where a >= 0. Scales: of every column the mean of the others and of these, 0 for an empty class."""

    def tables() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        segments = [(part.lo, part.numel, part.starts.codes) for part in batch.parts]
        matrices = [
            (part.lo + start, rows, columns, part.starts.scales + scale)
            for part in batch.parts
            for start, rows, columns, scale in split(part.shapes)
        ]
        return np.array(segments, np.int64), _table(tuple(matrices))

    accumulate(batch)
    segments, matrices = batch.once("columns", tables)
    payload = batch.payload
    _column_means(segments, matrices, batch.vector.numpy(), payload.scales.numpy(), payload.codes.numpy())


def add_columns(payload: Payload, means: torch.Tensor, matrices: Matrices, out: torch.Tensor) -> None:
    """Add to `out` what each bit stands for: the low or high mean (float32, as the scales) of its column."""
    _add_columns(payload.codes.numpy(), _table(matrices), means.numpy(), out.numpy())


@functools.lru_cache(maxsize=1 << 14)
def _table(matrices: Matrices) -> NDArray[np.int64]:
    return np.array(matrices, np.int64).reshape(-1, SCALE + 1)


@compiled()
def _add_row(row, above, below, number):  # type: ignore[no-untyped-def]
    for i in range(len(row)):
        high = max(row[i], np.float32(0))
        above[i] += np.float64(high)
        below[i] += np.float64(row[i]) - np.float64(high)
        number[i] += np.int32(row[i] >= np.float32(0))


@compiled()
def _column_means(segments, matrices, vector, scales, codes):  # type: ignore[no-untyped-def]
    for s in range(len(segments)):
        lo, n, code = segments[s]
        for start in range(0, n, CHUNK):
            pack_signs(vector[lo + start : lo + min(start + CHUNK, n)], codes[code + start // 8 :])
    for m in range(len(matrices)):
        start, rows, columns, scale = matrices[m]
        a = vector[start : start + rows * columns]
        above, below, number = np.zeros(columns), np.zeros(columns), np.zeros(columns, np.int32)
        if columns == 1:
            for at in range(0, rows, CHUNK):
                high, low, count = sums_by_sign(a[at : at + CHUNK])
                above[0] += high
                below[0] += low
                number[0] += count
        else:
            for row in range(rows):
                _add_row(a[row * columns : (row + 1) * columns], above, below, number)
        for i in range(columns):
            scales[scale + i] = below[i] / max(1, rows - number[i])
            scales[scale + columns + i] = above[i] / max(1, number[i])


@compiled()
def _add_run(bits, low, high, out):  # type: ignore[no-untyped-def]
    for i in range(len(out)):
        out[i] += high[i] if bits[i] else low[i]


@compiled()
def _add_one(bits, low, high, out):  # type: ignore[no-untyped-def]
    for i in range(len(out)):
        out[i] += high if bits[i] else low


@compiled()
def _add_columns(codes, matrices, means, out):  # type: ignore[no-untyped-def]
    waiting = np.empty(CHUNK, np.uint8)
    m = 0
    for chunk in range(0, len(out), CHUNK):
        stop = min(chunk + CHUNK, len(out))
        unpack(codes[chunk // 8 :], 1, waiting[: stop - chunk])
        at = chunk
        while at < stop:
            start, rows, columns, scale = matrices[m]
            end = start + rows * columns
            if at == end:
                m += 1
                continue
            column = (at - start) % columns
            upto = min(end, stop, at + columns - column if columns > 1 else stop)
            bits, into = waiting[at - chunk : upto - chunk], out[at:upto]
            if columns == 1:
                _add_one(bits, means[scale], means[scale + 1], into)
            else:
                low = scale + column
                _add_run(bits, means[low : low + upto - at], means[low + columns : low + columns + upto - at], into)
            at = upto
