"""Espresso's two searches: how each tensor is sent when all compression is on the device, then what moves to the host.

Both give what the paper's algorithms give that simulate the whole step for every candidate, faster: the first needs
three maxima per candidate, because changing one tensor shifts the terms of a formula before and behind it by constants;
the second skips moves that a bound rules out. Source: D-51; Espresso, algorithms 1 and 2.

The formula says when a step ends if every tensor is a message of its own, first ready, first sent. The network idles
only when nothing is ready, so the last message ends at the latest of r + (the seconds of all messages that become ready
at r or later), over all moments r at which one does, or with the backward pass. Nothing has to be simulated step by
step. Where that maximum is reached last, the network was idle ("bubble" in the paper) just before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ssfx.core.lazy import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]


TICK_S = 1e-12
"""Times that differ by less are equal: additions in another order."""


@dataclass(frozen=True)
class EspressoWork:
    """Seconds that each tensor takes, in backward order.

    encode on the device and network, for its message and what the communication stream computes, if it stays there;
    host and host_network if it moves to the host (`host` is infinite where it cannot).
    """

    encode: Array
    network: Array
    host: Array
    host_network: Array


@dataclass(frozen=True)
class EspressoOutcome:
    """What `Timeline.run` found.

    clock_s: when each tensor has left the compute stream. host_s: when those on the host are compressed, in their
    order. end_s: the end of the step. device_end_s, host_end_s: until when the network has at least to do with what
    becomes ready at these moments or later.
    """

    clock_s: Array
    host_s: Array
    end_s: float
    device_end_s: Array
    host_end_s: Array

    def bound_since_s(self, limit_s: float) -> float:
        """Return the first moment from which on the step cannot end before `limit_s`; infinite if there is none.

        No decision about a tensor whose gradient comes later than that makes the step end earlier.
        """
        moments = [(self.clock_s, self.device_end_s), (self.host_s, self.host_end_s)]
        first = [clock[ends >= limit_s][:1] for clock, ends in moments]
        return min((float(at[0]) for at in first if len(at)), default=float("inf"))


class EspressoTimeline:
    """Evaluates which of the compressed tensors move to the host; everything else is fixed."""

    def __init__(self, gap_s: Array, work: EspressoWork) -> None:
        self.gap_s, self.work = gap_s, work

    def run(self, on_host: Mask) -> EspressoOutcome:
        """Return the outcome when exactly the tensors of this mask are compressed on the host."""
        work, hosted = self.work, np.flatnonzero(on_host)
        clock = np.cumsum(self.gap_s + np.where(on_host, 0.0, work.encode))
        behind = remaining(np.where(on_host, 0.0, work.network))
        host = one_by_one(clock[hosted], work.host[hosted])
        host_behind = remaining(work.host_network[hosted])
        at = clock.searchsorted(host)
        host_end = host + host_behind[:-1] + behind[at]
        late_host = np.repeat(host_behind, np.diff(at, prepend=0, append=len(clock)))
        device_end = clock + behind[:-1] + late_host
        end_s = max(float(clock[-1]), float(device_end.max()), float(host_end.max(initial=0.0)))
        return EspressoOutcome(clock, host, end_s, device_end, host_end)

    def ready_s(self, on_host: Mask) -> Array:
        """Return when each tensor can be sent."""
        outcome = self.run(on_host)
        ready = outcome.clock_s.copy()
        ready[on_host] = outcome.host_s
        return ready


def remaining(seconds: Array) -> Array:
    """Return the sums over all entries from each one on, and a zero behind the last."""
    return np.append(np.cumsum(seconds[::-1])[::-1], 0.0)


def one_by_one(arrival_s: Array, work_s: Array) -> Array:
    """Return when each job is done that a single worker takes in this order, none before it has arrived."""
    total = np.cumsum(work_s)
    done: Array = total + np.maximum.accumulate(arrival_s - (total - work_s))
    return done


MAX_WORK = 1 << 24
"""Host placements are enumerated only while their number times the number of tensors stays below this."""
_PASSES = 2


def choose_options(gap_s: Array, numel: Ints, options: Sequence[EspressoWork]) -> Ints:
    """Return for every tensor the position of its option; the first one is not to compress.

    Tensors are decided once, largest first, of equal ones the latest; a tensor sent before the last bubble stays as it
    is, for a shorter message could only widen the bubble. Equally good: not to compress, then the earlier option.
    """
    plain, others = options[0], options[1:]
    chosen = np.zeros(len(numel), dtype=np.int64)
    ends = np.cumsum(gap_s + plain.encode) + remaining(plain.network)[:-1]
    backward_s = float(np.sum(gap_s + plain.encode))
    first = last_bubble(ends)
    for t in np.lexsort((-np.arange(len(numel)), -numel)).tolist():
        if t < first:
            continue
        before, own, after = ends[:t].max(initial=0.0), ends[t], ends[t + 1 :].max(initial=0.0)
        best_s, best = max(backward_s, before, own, after), None
        for number, option in enumerate(others, start=1):
            later = option.encode[t] - plain.encode[t]
            longer = option.network[t] - plain.network[t]
            end_s = max(backward_s + later, before + longer, own + longer + later, after + later)
            if end_s < best_s - TICK_S:
                best_s, best = end_s, (number, longer, later)
        if best is not None:
            chosen[t], longer, later = best
            ends[: t + 1] += longer
            ends[t:] += later
            backward_s += later
            first = max(first, last_bubble(ends))
    return chosen


def last_bubble(ends_s: Array) -> int:
    """Return the last tensor that finds the network idle, from when each would end alone with all that follow."""
    return int(np.flatnonzero(ends_s >= ends_s.max() - TICK_S)[-1])


def choose_host(timeline: EspressoTimeline, groups: Sequence[Ints], max_states: int) -> tuple[Mask, bool]:
    """Return which tensors to compress on the host, and whether all placements were considered.

    Of each group of equal tensors, in backward order, the first few move. All combinations are considered if there are
    at most `max_states` of them (and MAX_WORK permits); else the groups are gone through in turn, twice. Equally good:
    the placement found first, beginning with none.
    """
    states = math.prod(len(group) + 1 for group in groups)
    if states <= max_states and states * len(timeline.gap_s) <= MAX_WORK:
        return _all_combinations(timeline, groups), True
    return _one_group_at_a_time(timeline, groups), False


class _Bound:
    """Which tensors cannot end the step earlier by moving to the host, regardless of those behind them."""

    def __init__(self, timeline: EspressoTimeline, movable: Ints) -> None:
        work = timeline.work
        self._encode = work.encode
        fixed, compress, network = work.encode.copy(), np.zeros(len(work.encode)), work.network.copy()
        fixed[movable] = 0.0
        compress[movable] = np.minimum(work.encode, work.host)[movable]
        network[movable] = np.minimum(work.network, work.host_network)[movable]
        self._gain_s = work.network - network
        clock = np.cumsum(timeline.gap_s + fixed)
        # Either only its own message waits for a compressor call, or all that follow it are ready no earlier than it.
        until = clock + np.maximum(compress + network, remaining(network)[:-1])
        self._rest_s = np.maximum.accumulate(until[::-1])[::-1] - clock

    def hopeless(self, tensors: Ints, outcome: EspressoOutcome, limit_s: float) -> Mask:
        """Return for tensors on the device in `outcome` whether no move of them, first to last, ends before `limit_s`.

        True for one means that moving any from this one on is in vain. What came before it stays as it is, and moving
        may shorten messages by no more than is added to the limit here.
        """
        since_s = outcome.bound_since_s(limit_s + float(self._gain_s[tensors].sum()))
        arrival_s = (outcome.clock_s - self._encode)[tensors]
        vain: Mask = (arrival_s >= since_s) | (arrival_s + self._rest_s[tensors] >= limit_s)
        return vain


def _all_combinations(timeline: EspressoTimeline, groups: Sequence[Ints]) -> Mask:
    """Depth first: every placement is reached from the one without its last tensor."""
    previous = {int(t): int(group[i - 1]) if i else None for group in groups for i, t in enumerate(group)}
    movable = np.array(sorted(previous), dtype=np.int64)
    bound = _Bound(timeline, movable)
    best_s, best = math.inf, np.zeros(len(timeline.gap_s), dtype=bool)
    pending = [(best, 0)]
    while pending:
        placed, start = pending.pop()
        outcome = timeline.run(placed)
        if outcome.end_s < best_s - TICK_S:
            best_s, best = outcome.end_s, placed
        branches = []
        rest = movable[start:]
        for number, (tensor, vain) in enumerate(zip(rest, bound.hopeless(rest, outcome, best_s - TICK_S), strict=True)):
            if vain:
                break
            before = previous[int(tensor)]
            if before is None or placed[before]:
                more = placed.copy()
                more[tensor] = True
                branches.append((more, start + number + 1))
        pending += reversed(branches)
    return best


def _one_group_at_a_time(timeline: EspressoTimeline, groups: Sequence[Ints]) -> Mask:
    bound = _Bound(timeline, np.sort(np.concatenate(groups)))
    placed = np.zeros(len(timeline.gap_s), dtype=bool)
    current = timeline.run(placed)
    for _ in range(_PASSES):
        changed = False
        for group in groups:
            best_s, best = current.end_s, None
            tried, outcome = placed, current
            if placed[group[0]]:
                tried = placed.copy()
                tried[group] = False
                outcome = timeline.run(tried)
            for count in range(len(group) + 1):
                if outcome.end_s < best_s - TICK_S:
                    best_s, best = outcome.end_s, (tried, outcome)
                rest = group[count:]
                if not len(rest) or bound.hopeless(rest, outcome, best_s - TICK_S)[0]:
                    break
                tried = tried.copy()
                tried[rest[0]] = True
                outcome = timeline.run(tried)
            if best is not None:
                (placed, current), changed = best, True
        if not changed:
            break
    return placed
