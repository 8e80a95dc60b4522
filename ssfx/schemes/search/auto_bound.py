"""A time that no plan of given methods goes below: device and network each do their work without waiting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ssfx.core.lazy import numpy as np
from ssfx.schemes.search.auto_tables import Tables

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


BY_TENSOR = 0.5
"""Share of the network's time between cuts that plans which choose tensor by tensor may still take."""


def lower_bound_s(tables: Tables) -> float:
    """Return the larger of two relaxations over all cuts and methods, and of backward with one last message.

    In the first the device never waits for the network: backward, and the least that compressing and decoding can take.
    In the second the network never waits for the device once the first gradient is there, nor do messages for what
    compressing them takes.
    """
    last = len(tables.cuts) - 1
    device_s = tables.ready_s[-1] + _shortest(tables.device + tables.decode)
    network_s = tables.ready_s[1] + _shortest(tables.message + tables.decode)
    alone = tables.device[:, last, :last] + tables.message[:, last, :last] + tables.decode[:, last, :last]
    latest_s = tables.ready_s[-1] + float(alone.min())
    return float(max(device_s, network_s, latest_s)) + tables.after_s


def network_bound_s(tables: Tables, chosen: Sequence[int]) -> float:
    """Return a time below which no plan of the methods at those positions is looked for, wherever it compresses.

    Each piece between two cuts goes by the method that is best for it, in messages as long as one likes: what any
    message takes however short it is, the least that the method has between any two cuts, counts once. Plans that
    choose by tensor can be below that, so half of it counts.
    """
    cost, last = (tables.message + tables.decode)[list(chosen)], len(tables.cuts) - 1
    cost = cost[np.isfinite(cost).any(axis=(1, 2))]
    if not len(cost):
        return float("inf")
    shortest = cost.min(axis=(1, 2))
    pieces = np.array([cost[:, start + 1, start] - shortest for start in range(last)])
    network_s = float(pieces.min(axis=1).clip(0).sum() + shortest.min())
    return float(max(tables.ready_s[-1], tables.ready_s[1] + BY_TENSOR * network_s)) + tables.after_s


def _shortest(cost: Array) -> float:
    """Return the least sum over buckets that follow one another from the first cut to the last."""
    best = cost.min(axis=0)  # the method that is best for each bucket
    total = np.zeros(len(best))
    for end in range(1, len(best)):
        total[end] = (total[:end] + best[end, :end]).min()
    return float(total[-1])
