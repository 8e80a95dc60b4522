"""Buckets of one chunk to scales and codes and back: what `quantize` does while a chunk is in the first-level cache.

A chunk begins where a bucket and a rotated block begin. Source: D-8, D-25.
"""

from __future__ import annotations

import numpy as np

from ssfx.compressors.kernels.cpu.codes import (
    LARGEST,
    add_bits,
    add_floats,
    add_levels,
    in_steps,
    largest_key,
    level_codes,
    sum_of_squares,
    sums_by_sign,
    to_floats,
    unpack,
)
from ssfx.compressors.kernels.cpu.hadamard import rotate_blocks
from ssfx.compressors.kernels.cpu.jit import compiled
from ssfx.compressors.kernels.interface import LARGEST_FP8, SMALLEST_SCALE
from ssfx.compressors.kernels.reference.pack import FIRST, RESOLUTION, SECOND

KINDS = ("levels", "fp8", "means")
LEVELS, FP8, MEANS = range(3)
"""Kinds of a coding, by number."""
_EUCLIDEAN, _LARGEST, MEAN = range(3)
"""What the scale of a bucket is: its norm, largest or mean magnitude."""
NAN = np.float32(np.nan)
_MOST = np.finfo(np.float32).max
_TOP, _SMALLEST = np.float32(LARGEST_FP8), np.float32(SMALLEST_SCALE)


@compiled()
def _float(key):  # type: ignore[no-untyped-def]
    """Return the float32 whose bits are `key`."""
    return np.int32(key).view(np.float32)


@compiled()
def norm_of(a, kind):  # type: ignore[no-untyped-def]
    """Return the largest or the mean |a| or the Euclidean norm as float32, NaN if it is not finite."""
    if kind == MEAN:
        above, below, _ = sums_by_sign(a)
        return np.float32((above - below) / len(a))
    if kind == _LARGEST:
        found = largest_key(a)
        return _float(found) if found <= LARGEST else NAN
    norm = np.float32(np.sqrt(sum_of_squares(a)))
    return norm if np.isfinite(norm) else NAN


@compiled()
def _per_unit(norm, top):  # type: ignore[no-untyped-def]
    """Return top / norm in float32: 0 for a norm of 0, and finite where it is denormal."""
    return np.float32(min(np.float64(top) / norm, _MOST)) if norm > 0 else np.float32(0)


@compiled()
def find_scales(a, scales, kind, size, largest):  # type: ignore[no-untyped-def]
    """Write the scales of whole buckets; NaN where they are not finite."""
    for g in range(-(-len(a) // size)):
        bucket = a[g * size : (g + 1) * size]
        if kind == MEANS:
            above, below, number = sums_by_sign(bucket)
            low, high = np.float32(below / max(1, len(bucket) - number)), np.float32(above / max(1, number))
            finite = np.isfinite(low) and np.isfinite(high)
            scales[2 * g], scales[2 * g + 1] = low if finite else NAN, high if finite else NAN
        elif kind == FP8:
            norm = norm_of(bucket, _LARGEST)
            scales[g] = max(np.float32(norm / _TOP), _SMALLEST) if np.isfinite(norm) else NAN
        else:
            scales[g] = norm_of(bucket, _LARGEST if largest else _EUCLIDEAN)


@compiled()
def levels(a, scales, size, top, zero, noise, exact, made):  # type: ignore[no-untyped-def]
    """Write a byte for each level of whole buckets."""
    for g in range(-(-len(a) // size)):
        bucket, into = a[g * size : (g + 1) * size], exact[g * size : min((g + 1) * size, len(a))]
        if np.isfinite(scales[g]):
            in_steps(bucket, _per_unit(scales[g], top), into)
        else:
            into[:] = 0
    level_codes(a, exact, noise, top, zero, made)


@compiled()
def floats(a, scales, size, made):  # type: ignore[no-untyped-def]
    """Write a byte for each e4m3 number of whole buckets."""
    for g in range(-(-len(a) // size)):
        bucket, into = a[g * size : (g + 1) * size], made[g * size : min((g + 1) * size, len(a))]
        if np.isfinite(scales[g]):
            to_floats(bucket, scales[g], into)
        else:
            into[:] = 0


@compiled()
def add_chunk(  # type: ignore[no-untyped-def]
    scales, codes, kind, bits, zero, size, rotation, unit, waiting, turned, out, unpacked=False
):
    """Add `unit` times what codes of whole buckets stand for to `out`; `waiting`, `turned`: as many bytes and floats.

    `unpacked`: `waiting` holds the codes already.
    """
    n = len(out)
    into = out
    if rotation:
        into = turned[:n]
        into[:] = 0
    if bits < 8 and not unpacked:
        unpack(codes, bits, waiting[:n])
    for g in range(-(-n // size)):
        lo, hi = g * size, min((g + 1) * size, n)
        if kind == MEANS:
            low, high = np.float32(scales[2 * g] * unit), np.float32(scales[2 * g + 1] * unit)
            add_bits(waiting[lo:hi], low, high, into[lo:hi])
        elif kind == FP8:
            add_floats(codes[lo:hi], np.float32(scales[g] * unit), into[lo:hi])
        elif bits == 8:
            add_levels(codes[lo:hi].view(np.int8), zero, np.float32(scales[g] * unit), into[lo:hi])
        else:
            add_levels(waiting[lo:hi], zero, np.float32(scales[g] * unit), into[lo:hi])
    if rotation:
        rotate_blocks(into, rotation)
        for i in range(n):
            out[i] += into[i]


_FIRST, _SECOND = np.uint32(FIRST), np.uint32(SECOND)
_RESOLUTION = np.float32(RESOLUTION)


@compiled()
def _uniform(first, high, out):  # type: ignore[no-untyped-def]
    for i in range(len(out)):
        x = np.uint32(first + np.uint32(i))
        x = np.uint32(np.uint32(x ^ np.uint32(x >> np.uint32(16))) * _FIRST)
        x = np.uint32(x ^ high)
        x = np.uint32(np.uint32(x ^ np.uint32(x >> np.uint32(15))) * _SECOND)
        out[i] = np.float32(np.int32(x >> np.uint32(8))) * _RESOLUTION


@compiled()
def uniform(key, start, out):  # type: ignore[no-untyped-def]
    """Write the numbers of positions start, start + 1, ... into `out` (float32, in [0, 1), multiples of 2^-24).

    A number depends on a 64-bit key and a position and on nothing else, so it is the same on every device and after a
    restart. The hash is two rounds of multiply and shift with the key's halves put in before each. Source: D-8.

    The loop is a function of its own: with 64-bit numbers beside it, its vectors would be half as wide.
    """
    wide = np.uint64(key)
    low, high = np.uint32(wide & np.uint64(0xFFFFFFFF)), np.uint32(wide >> np.uint64(32))
    _uniform(np.uint32(low + np.uint32(start)), high, out)
