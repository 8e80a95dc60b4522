"""SeCoPa, HiPress's rule: whether to compress a gradient and into how many partitions to cut it, by a cost formula.

Each gradient is decided on its own; neither the others nor the backward pass enter. Source: D-50; the
formulas of the authors' public code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ssfx.core.errors import ConfigError
from ssfx.core.lazy import numpy as np
from ssfx.planning.costs import Costs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Seconds = Callable[[Array], Array]


@dataclass(frozen=True)
class StepCosts:
    """Seconds of the steps, for arrays of partitions.

    gather, broadcast (one aggregator and all workers) and send (one hop) take bytes of the partition, encode its
    elements, decode its elements and the bytes of its payload. Merging is free, as in the authors' fit.
    """

    gather: Seconds
    broadcast: Seconds
    send: Seconds
    encode: Seconds
    decode: Callable[[Array, Array], Array]


def fitted(costs: Costs) -> StepCosts:
    """Return the steps on the cluster that `costs` describes (D-50).

    An aggregator exchanges as much with its workers as every rank does in an all-gather, and one hop is one of its
    world_size - 1 equal messages.
    """

    def gather(nbytes: Array) -> Array:
        return costs.exchange_many_s("all_gather", nbytes)

    return StepCosts(
        gather,
        gather,
        lambda nbytes: gather(nbytes) / (costs.world_size - 1),
        costs.encode.many,
        lambda numel, _: costs.decode.many(numel),
    )


def authors(world_size: int) -> StepCosts:
    """Return the constants in the authors' code: two-bit payloads between 4, 8 or 16 nodes; ConfigError for others."""
    if world_size not in _NODES:
        known = ", ".join(map(str, _NODES))
        raise ConfigError(
            f"scheme=hipress: constants=authors holds for {known} workers only, not for {world_size}; "
            "choose constants=fitted"
        )
    gather, broadcast = _NODES[world_size]
    return StepCosts(
        _per_float(*gather),
        _per_float(*broadcast),
        _per_float(8.50e-7, 0.2034),
        lambda numel: _per_float(1.413e-8, 0.0589)(4 * numel),
        lambda _, nbytes: _per_float(6.204e-9, 0.1396)(nbytes),
    )


_NODES = {
    4: ((2.716e-6, 0.4193), (2.716e-6, 0.2216)),
    8: ((6.117e-6, 0.8077), (6.117e-6, 0.2729)),
    16: ((1.294e-5, 1.4406), (1.292e-5, 0.4554)),
}
"""By number of nodes: gather and broadcast, each in milliseconds per 32-bit number and milliseconds at the start."""


def _per_float(slope_ms: float, start_ms: float) -> Seconds:
    """Return seconds by bytes of a line in milliseconds by 32-bit numbers."""
    return lambda nbytes: 1e-3 * (slope_ms * nbytes / 4 + start_ms)


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
