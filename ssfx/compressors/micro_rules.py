"""The rules of MiCRO: which part of a tensor a rank looks at, and how its threshold follows the count.

Source: codec specification, section 4.8; the rule of kljp/micro.
"""

from __future__ import annotations


def partition_of(rank: int, step: int, world_size: int) -> int:
    """Return the partition that `rank` selects from at `step`; no two ranks have the same one."""
    return (rank + step) % world_size


def threshold_scale(selected: int, k: int) -> float:
    """Return the factor of the threshold after all ranks together selected `selected` elements where `k` were wanted.

    Inside the band of a tenth the threshold always rises, as in the authors' code, until it leaves the band.
    """
    ratio = selected / k
    return 1.005 if ratio > 1.1 else 1.00125 if ratio > 0.909 else 0.995
