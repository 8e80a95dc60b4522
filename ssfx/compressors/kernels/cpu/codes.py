"""Loops over one chunk: numbers to codes of one byte each, and the sums that scales are made of; compiled.

Magnitudes compare as int32 keys, sums are float64 in any order: of float32 numbers they are then exact enough to round
to the float32 scale that the plain-torch path finds. Source: D-25.
"""

from __future__ import annotations

import numpy as np

from ssfx.compressors.kernels.cpu.jit import compiled

LARGEST = np.int32(0x7F7FFFFF)
"""Bits of the largest finite float32."""
_MAGNITUDE = np.int32(0x7FFFFFFF)
_ANY_ORDER = {"reassoc", "nsz"}  # lets sums vectorise; NaN and Inf stay what they are


@compiled()
def ternary_codes(a, noise, scale, codes):  # type: ignore[no-untyped-def]
    """Write 1 + sign(a) where noise * scale < |a|, else 1."""
    for i in range(len(a)):
        kept = np.int32(noise[i] * scale < abs(a[i]))
        negative = np.int32(a[i] < np.float32(0))
        codes[i] = np.uint8(np.int32(1) + np.int32(kept - np.int32(2) * np.int32(kept & negative)))


@compiled()
def sign_codes(a, codes):  # type: ignore[no-untyped-def]
    """Write 1 + sign(a); NaN counts as zero."""
    for i in range(len(a)):
        codes[i] = np.uint8(np.int32(1) + np.int32(a[i] > np.float32(0)) - np.int32(a[i] < np.float32(0)))


@compiled()
def in_steps(a, per_unit, exact):  # type: ignore[no-untyped-def]
    """Write |a| * per_unit."""
    for i in range(len(a)):
        exact[i] = abs(a[i]) * per_unit


@compiled()
def level_codes(a, exact, noise, top, offset, codes):  # type: ignore[no-untyped-def]
    """Write offset + sign(a) * min(top, exact rounded up or down at random)."""
    most = np.float32(top)
    for i in range(len(a)):
        below = np.floor(exact[i])
        level = min(most, below + np.float32(noise[i] < exact[i] - below))
        codes[i] = np.uint8(np.int32(offset + np.int32(np.copysign(level, a[i]))))


@compiled()
def largest_key(a):  # type: ignore[no-untyped-def]
    """Return the bits of the largest magnitude; NaN counts as the largest, above infinity."""
    keys = a.view(np.int32)
    largest = np.int32(0)
    for i in range(len(keys)):
        largest = max(largest, np.int32(keys[i] & _MAGNITUDE))
    return largest


@compiled(fastmath=_ANY_ORDER)
def sum_of_magnitudes(a):  # type: ignore[no-untyped-def]
    """Return the sum of |a| in float64."""
    total = 0.0
    for i in range(len(a)):
        total += abs(np.float64(a[i]))
    return total


@compiled(fastmath=_ANY_ORDER)
def sum_of_squares(a):  # type: ignore[no-untyped-def]
    """Return the sum of a^2 in float64."""
    total = 0.0
    for i in range(len(a)):
        total += np.float64(a[i]) * np.float64(a[i])
    return total


@compiled(fastmath=_ANY_ORDER)
def sums(a):  # type: ignore[no-untyped-def]
    """Return the sums of a and of a^2 in float64."""
    total, square = 0.0, 0.0
    for i in range(len(a)):
        x = np.float64(a[i])
        total += x
        square += x * x
    return total, square


@compiled(fastmath=_ANY_ORDER)
def sums_by_sign(a):  # type: ignore[no-untyped-def]
    """Return the sums of a over a >= 0 and over the rest (with NaN) in float64, and how many are >= 0."""
    above, below, count = 0.0, 0.0, np.int32(0)
    for i in range(len(a)):
        high = max(a[i], np.float32(0))
        above += np.float64(high)
        below += np.float64(a[i]) - np.float64(high)
        count = np.int32(count + np.int32(a[i] >= np.float32(0)))
    return above, below, count
