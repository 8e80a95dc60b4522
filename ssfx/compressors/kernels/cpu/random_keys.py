"""Keys of private randomness inside compiled kernels: one per segment, without a step of Python each.

Same numbers as `ssfx.wire.random_keys`. Source: D-8.
"""

from __future__ import annotations

import numpy as np

from ssfx.compressors.kernels.cpu.jit import compiled

_INCREMENT = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def signed(seed: int) -> int:
    """Return the number from -2^63 to 2^63 - 1 that equals `seed` in 64-bit arithmetic: what a kernel takes."""
    low = seed & ((1 << 64) - 1)
    return low - (1 << 64) if low >> 63 else low


@compiled()
def splitmix64(z):  # type: ignore[no-untyped-def]
    """Return the SplitMix64 output for state `z` (uint64) + the golden-ratio increment; wraps."""
    z = np.uint64(z + _INCREMENT)
    z = np.uint64(np.uint64(z ^ np.uint64(z >> np.uint64(30))) * _FIRST)
    z = np.uint64(np.uint64(z ^ np.uint64(z >> np.uint64(27))) * _SECOND)
    return np.uint64(z ^ np.uint64(z >> np.uint64(31)))


@compiled()
def key(seed, tensor_id, step, rank):  # type: ignore[no-untyped-def]
    """Return the 64-bit key (uint64) of one tensor's randomness at one step; all arguments int64."""
    h = splitmix64(np.uint64(seed) ^ np.uint64(tensor_id))
    h = splitmix64(np.uint64(h ^ np.uint64(step)))
    return splitmix64(np.uint64(h ^ np.uint64(rank)))
