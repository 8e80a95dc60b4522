"""Uniform noise from a counter: a number depends on a 64-bit key and a position and on nothing else.

So it is the same on every device, in any order and after a restart, no generator has state, and the loop vectorises.
The hash is two rounds of multiply and shift with the key's halves put in before each. Source: D-8.
"""

from __future__ import annotations

import numpy as np

from ssfx.compressors.kernels.cpu.jit import compiled
from ssfx.compressors.kernels.reference.pack import FIRST, RESOLUTION, SECOND

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

    The loop is a function of its own: with 64-bit numbers beside it, its vectors would be half as wide.
    """
    wide = np.uint64(key)
    low, high = np.uint32(wide & np.uint64(0xFFFFFFFF)), np.uint32(wide >> np.uint64(32))
    _uniform(np.uint32(low + np.uint32(start)), high, out)
