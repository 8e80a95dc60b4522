"""A time that no plan of given methods goes below: device and network each do their work without waiting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ssfx.core.lazy import numpy as np
from ssfx.schemes.search.auto_tables import Tables

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


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
    """Return a time that no plan of the methods at those positions goes below, wherever compression takes place."""
    if not chosen:
        return float("inf")
    cost = (tables.message + tables.decode)[list(chosen)]
    return float(max(tables.ready_s[-1], tables.ready_s[1] + _shortest(cost))) + tables.after_s


def _shortest(cost: Array) -> float:
    """Return the least sum over buckets that follow one another from the first cut to the last."""
    best = cost.min(axis=0)  # the method that is best for each bucket
    total = np.zeros(len(best))
    for end in range(1, len(best)):
        total[end] = (total[:end] + best[end, :end]).min()
    return float(total[-1])
