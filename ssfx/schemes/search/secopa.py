"""SeCoPa, HiPress's rule: whether to compress a gradient and into how many partitions to cut it, by a cost formula.

Each gradient is decided on its own; neither the others nor the backward pass enter. Source: D-50; the
formulas of the authors' public code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ssfx.core.lazy import numpy as np
from ssfx.schemes.search.hipress_costs import StepCosts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Ints = NDArray[np.int64]

Topology = Literal["PS", "RING"]

_EVERY = 64
_FURTHER = 64


@dataclass(frozen=True)
class Decisions:
    """For every gradient: the better way, its number of partitions, and the seconds of both ways at their best."""

    compress: NDArray[np.bool_]
    partitions: Ints
    dense_s: Array
    compressed_s: Array


def decide(
    numel: Array, dense_bytes: Array, payload_bytes: Array, world_size: int, topology: Topology, costs: StepCosts
) -> Decisions:
    """Return the decisions for gradients of `numel` (positive) elements; a payload that is not smaller is never sent.

    Of equally good numbers of partitions the smallest is chosen, of equally good ways the dense one.
    """
    counts = partition_counts(world_size)
    possible = counts <= numel[:, None]
    part_numel, part_dense, part_payload = (size[:, None] / counts for size in (numel, dense_bytes, payload_bytes))
    encode, decode = costs.encode(part_numel), costs.decode(part_numel, part_payload)
    hops = world_size - 1
    if topology == "PS":
        dense = costs.gather(part_dense) + costs.broadcast(part_dense)
        packed = costs.gather(part_payload) + costs.broadcast(part_payload)
        packed += np.minimum(counts + 1, world_size) * encode + np.minimum(hops + counts, 2 * hops) * decode
    else:
        dense = 2 * hops * costs.send(part_dense)
        packed = 2 * hops * costs.send(part_payload) + world_size * (encode + decode)
    dense, packed = np.where(possible, dense, np.inf), np.where(possible, packed, np.inf)
    dense_s, compressed_s = dense.min(axis=1), packed.min(axis=1)
    compress = (compressed_s < dense_s) & (payload_bytes < dense_bytes)
    best = np.where(compress, packed.argmin(axis=1), dense.argmin(axis=1))
    return Decisions(compress, counts[best], dense_s, compressed_s)


def partition_counts(world_size: int) -> Ints:
    """Return the numbers of partitions that are tried: up to 64 every one, then about 64 more up to `world_size`.

    The authors try every one; with thousands of ranks the formulas hardly change from one to the next.
    """
    every = np.arange(1, min(world_size, _EVERY) + 1)
    if world_size <= _EVERY:
        return every
    further = np.unique(np.rint(np.geomspace(_EVERY + 1, world_size, _FURTHER)).astype(np.int64))
    return np.concatenate([every, further])
