"""Quantising codecs on the CPU: one compiled call fills scales and codes of all segments of a batch.

Same functions and results as `ssfx.kernels.pack_reference`. A chunk is read once; codes and noise stay in the
first-level cache until they are packed. Source: codec specification, section 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ssfx.kernels.codes import (
    LARGEST,
    largest_key,
    level_codes,
    sum_of_magnitudes,
    sum_of_squares,
    sums,
    sums_by_sign,
    ternary_codes,
)
from ssfx.kernels.jit import compiled
from ssfx.kernels.noise import uniform
from ssfx.kernels.pack import CHUNK, pack
from ssfx.kernels.pack_reference import offset_of
from ssfx.kernels.signs import pack_signs
from ssfx.kernels.unpack import add_levels, add_signs

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ssfx.compressors.batch import Batch

__all__ = ["add_levels", "add_signs", "levels", "scaled_signs", "signs", "ternary", "two_means"]

LO, NUMEL, SCALE, CODE, KEY = range(5)
"""Columns of the segment table: where a segment's numbers, scales and codes begin, and the key of its noise."""
_NAN = np.float32(np.nan)
_MOST = np.finfo(np.float32).max


def signs(batch: Batch) -> None:
    """Codes: 1 where a >= 0. Scale: 1, or NaN for a segment that is not finite."""
    _run(batch, _signs)


def scaled_signs(batch: Batch, block: int) -> None:
    """Codes: 1 where a >= 0. Scales: the mean of |a| of every `block` elements; 0 means the whole segment."""
    _run(batch, _scaled_signs, block)


def two_means(batch: Batch) -> None:
    """Codes: 1 where a >= 0. Scales: the mean of the others and of these, 0 for an empty class."""
    _run(batch, _two_means)


def ternary(batch: Batch, clip: float) -> None:
    """Codes: 1 + sign(a) with probability |a| / scale, else 1. Scale: the largest |a|, at most `clip` deviations.

    Nothing below the mean's magnitude is clipped, so a constant segment is sent as it is. `clip` 0: no limit.
    """
    _run(batch, _ternary, clip)


def levels(batch: Batch, bits: int, bucket: int, largest: bool) -> None:
    """Codes: signed levels of `bits` bits. Scales: each bucket's Euclidean norm, or its largest |a|; 0: one bucket.

    8 bits are a two's complement byte, fewer are offset by the highest level.
    """
    _run(batch, _levels, bits, offset_of(bits), bucket, largest)


def _run(batch: Batch, kernel: Callable[..., None], *settings: Any) -> None:
    batch.accumulate()
    parts = [part for part in batch.parts if part.numel]
    table: NDArray[np.int64] = batch.once(
        "segments",
        lambda: np.array(
            [(part.lo, part.numel, part.starts.scales, part.starts.codes, 0) for part in parts], np.int64
        ).reshape(-1, KEY + 1),
    )
    table.view(np.uint64)[:, KEY] = [batch.key(part.tensor_id) for part in parts]
    payload = batch.payload
    kernel(table, batch.vector.numpy(), payload.scales.numpy(), payload.codes.numpy(), *settings)


@compiled()
def _signs(table, vector, scales, codes):  # type: ignore[no-untyped-def]
    for s in range(len(table)):
        n, code = table[s, NUMEL], table[s, CODE]
        a = vector[table[s, LO] : table[s, LO] + n]
        largest = np.int32(0)
        for start in range(0, n, CHUNK):
            chunk = a[start : start + CHUNK]
            largest = max(largest, largest_key(chunk))
            pack_signs(chunk, codes[code + start // 8 :])
        scales[table[s, SCALE]] = np.float32(1) if largest <= LARGEST else _NAN


@compiled()
def _scaled_signs(table, vector, scales, codes, block):  # type: ignore[no-untyped-def]
    for s in range(len(table)):
        n, code = table[s, NUMEL], table[s, CODE]
        a = vector[table[s, LO] : table[s, LO] + n]
        size = block if block else n
        for g in range(0, n, size):
            end = min(g + size, n)
            total = 0.0
            for start in range(g, end, CHUNK):
                chunk = a[start : min(start + CHUNK, end)]
                total += sum_of_magnitudes(chunk)
                pack_signs(chunk, codes[code + start // 8 :])
            scales[table[s, SCALE] + g // size] = total / (end - g)


@compiled()
def _two_means(table, vector, scales, codes):  # type: ignore[no-untyped-def]
    for s in range(len(table)):
        n, code, scale = table[s, NUMEL], table[s, CODE], table[s, SCALE]
        a = vector[table[s, LO] : table[s, LO] + n]
        above, below, number = 0.0, 0.0, 0
        for start in range(0, n, CHUNK):
            chunk = a[start : start + CHUNK]
            high, low, count = sums_by_sign(chunk)
            above, below, number = above + high, below + low, number + count
            pack_signs(chunk, codes[code + start // 8 :])
        scales[scale] = below / max(1, n - number)
        scales[scale + 1] = above / max(1, number)


@compiled()
def _float(key):  # type: ignore[no-untyped-def]
    """Return the float32 whose bits are `key`."""
    bits = np.empty(1, np.int32)
    bits[0] = key
    return bits.view(np.float32)[0]


@compiled()
def _ternary(table, vector, scales, codes, clip):  # type: ignore[no-untyped-def]
    waiting, noise = np.empty(CHUNK, np.uint8), np.empty(CHUNK, np.float32)
    for s in range(len(table)):
        n, code = table[s, NUMEL], table[s, CODE]
        a = vector[table[s, LO] : table[s, LO] + n]
        largest, total, square = np.int32(0), 0.0, 0.0
        for start in range(0, n, CHUNK):
            chunk = a[start : start + CHUNK]
            largest = max(largest, largest_key(chunk))
            if clip:
                one, two = sums(chunk)
                total, square = total + one, square + two
        if largest > LARGEST:
            scales[table[s, SCALE]] = _NAN
            codes[code : code + (n + 3) // 4] = 0
            continue
        wide = np.float64(_float(largest))
        if clip:
            mean = total / n
            deviation = np.sqrt(max(0.0, square / n - mean * mean))
            wide = min(wide, max(clip * deviation, abs(mean)))
        scale = np.float32(wide)
        scales[table[s, SCALE]] = scale
        for start in range(0, n, CHUNK):
            chunk = a[start : start + CHUNK]
            uniform(table[s, KEY], start, noise)
            ternary_codes(chunk, noise, scale, waiting)
            pack(waiting[: len(chunk)], 2, codes[code + start // 4 :])


@compiled()
def _norm(a, largest):  # type: ignore[no-untyped-def]
    """Return the largest |a| or the Euclidean norm as float32, NaN if it is not finite."""
    if largest:
        key = largest_key(a)
        return _float(key) if key <= LARGEST else _NAN
    norm = np.float32(np.sqrt(sum_of_squares(a)))
    return norm if np.isfinite(norm) else _NAN


@compiled()
def _bucket_codes(a, noise, norm, top, offset, codes):  # type: ignore[no-untyped-def]
    """Write the codes of one bucket, or of the part of it that lies in a chunk."""
    if np.isnan(norm):
        codes[:] = offset
        return
    per_unit = np.float32(min(np.float64(top) / norm, _MOST)) if norm > 0 else np.float32(0)
    level_codes(a, noise, per_unit, top, offset, codes)


@compiled()
def _levels(table, vector, scales, codes, bits, offset, bucket, largest):  # type: ignore[no-untyped-def]
    waiting, noise = np.empty(CHUNK, np.uint8), np.empty(CHUNK, np.float32)
    top, zero = np.int32((1 << (bits - 1)) - 1), np.int32(offset)
    for s in range(len(table)):
        n, scale, code = table[s, NUMEL], table[s, SCALE], table[s, CODE]
        a = vector[table[s, LO] : table[s, LO] + n]
        size = bucket if bucket else n
        for g in range(0, n, size):
            scales[scale + g // size] = _norm(a[g : min(g + size, n)], largest)
        for start in range(0, n, CHUNK):
            chunk = a[start : start + CHUNK]
            made = codes[code + start : code + start + len(chunk)] if bits == 8 else waiting[: len(chunk)]
            uniform(table[s, KEY], start, noise[: len(chunk)])
            at = 0
            while at < len(chunk):
                g = (start + at) // size
                end = min(len(chunk), (g + 1) * size - start)
                _bucket_codes(chunk[at:end], noise[at:end], scales[scale + g], top, zero, made[at:end])
                at = end
            if bits < 8:
                pack(made, bits, codes[code + start * bits // 8 :])
