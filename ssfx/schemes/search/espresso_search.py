"""Espresso's two searches: how each tensor is sent when all compression is on the device, then what moves to the host.

Both give what the paper's algorithms give that simulate the whole step for every candidate, faster: the first needs
three maxima per candidate, because changing one tensor shifts the terms of the formula in `espresso_timeline` before
and behind it by constants; the second skips moves that a bound rules out. Source: D-51; Espresso,
algorithms 1 and 2.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ssfx.core.lazy import numpy as np
from ssfx.schemes.search.espresso_timeline import TICK_S, EspressoOutcome, EspressoTimeline, EspressoWork, remaining

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ssfx.schemes.search.espresso_timeline import Array, Ints, Mask

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
