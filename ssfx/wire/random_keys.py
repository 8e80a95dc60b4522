"""Keys of private randomness: the same on every rank, device and restart, never the global generator.

Source: D-8.
"""

_MASK = (1 << 64) - 1


def splitmix64(z: int) -> int:
    """Return the SplitMix64 output for state `z` + the golden-ratio increment; 64-bit, wraps."""
    z = (z + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def key(seed: int, tensor_id: int, step: int, rank: int = 0) -> int:
    """Return the 64-bit key of one tensor at one step; `rank` 0 for randomness that must agree on all ranks."""
    h = seed & _MASK
    for part in (tensor_id, step, rank):
        h = splitmix64(h ^ part)
    return h
