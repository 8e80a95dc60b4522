"""A time that no plan of given methods goes below: device and network each do their work without waiting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ssfx.collectives import Reducer, collectives
from ssfx.compressors import build
from ssfx.core.lazy import numpy as np
from ssfx.planning.costs import Costs, Curve
from ssfx.planning.profile import Profile
from ssfx.schemes.carrier import keeps_fraction
from ssfx.schemes.search.auto_methods import Kind
from ssfx.schemes.search.auto_tables import Tables
from ssfx.simulator.pricing.flow import Backward
from ssfx.simulator.pricing.message_sizes import payload_bytes_many

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


def gathers_bound_s(profile: Profile, costs: Costs, kinds: Iterable[Kind]) -> float:
    """Return a time before which no plan ends that sends each tensor dense or by a kind that selects within a tensor,
    in all-reduces and gathers, on the device or the host; 0 where a reducer or a joint selection may send it.

    What has any of the gradients from some position on is sent when the first of these is there, one message at a
    time, and a message takes no less than a line says: something at all, and something for each byte. A tensor adds at
    least the bytes of its own payload. All else (hooks, calls, copies, decoding) only adds. Averages that are added
    straight into gradients are written sooner, so that is taken off for every tensor.
    """
    selecting = [kind for kind in kinds if kind.compressor is not None and keeps_fraction(kind.compressor)]
    if any(kind.leaves_tensors_out or isinstance(collectives.build(kind.collective), Reducer) for kind in selecting):
        return 0.0
    if not profile.nbytes or not {"all_reduce", "all_gather"} <= costs.exchange.keys():
        return 0.0
    reduced = gathered = np.array([spec.nbytes for spec in profile.tensors], dtype=float)
    for kind in selecting:
        own = payload_bytes_many(str(kind.compressor), np.array(profile.numel, dtype=float), kind.density)
        if build(str(kind.compressor)).additive:
            reduced = np.minimum(reduced, own)
        else:
            gathered = np.minimum(gathered, own)
    sent = {"all_reduce": reduced, "all_gather": gathered, "all_gather_v": gathered}
    lines = [(*_line_below(costs.exchange[name]), sizes) for name, sizes in sent.items() if name in costs.exchange]
    each_s = np.min([per_byte_s * sizes for _, per_byte_s, sizes in lines], axis=0)
    from_here_s = np.cumsum(each_s[::-1])[::-1] + min(least_s for least_s, *_ in lines)
    backward, over = Backward(profile, costs), costs.overheads
    ends_s = np.where(np.cumsum(reduced[::-1])[::-1] > 0, np.cumsum(backward.base_s) + from_here_s, 0.0)
    sooner_s = max(0.0, over.result_s - over.sum_s) * len(profile.tensors)
    return float(ends_s.max()) + backward.after_s - sooner_s


def _line_below(curve: Curve) -> tuple[float, float]:
    """Return seconds and seconds per unit, neither negative, of a line that the curve is nowhere below."""
    sizes, seconds = np.array(curve.sizes), np.array(curve.seconds)
    if len(sizes) == 1:
        return float(seconds[0]), 0.0
    slope = float((seconds[-1] - seconds[-2]) / (sizes[-1] - sizes[-2]))
    base_s = float((seconds - slope * sizes).min())
    if slope >= 0 and base_s >= 0:
        return base_s, slope
    filled = sizes > 0
    return 0.0, max(0.0, min(slope, float((seconds[filled] / sizes[filled]).min())))


def _shortest(cost: Array) -> float:
    """Return the least sum over buckets that follow one another from the first cut to the last."""
    best = cost.min(axis=0)  # the method that is best for each bucket
    total = np.zeros(len(best))
    for end in range(1, len(best)):
        total[end] = (total[:end] + best[end, :end]).min()
    return float(total[-1])
