"""What HiPress's rule takes each step of synchronising one partition to cost: from our costs, or the authors' fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ssfx.core.errors import ConfigError
from ssfx.planning.costs import Costs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ssfx.core.lazy import numpy as np

    Array = NDArray[np.float64]
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
