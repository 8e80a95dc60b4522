"""The best way to cut the backward order into jointly compressed groups: an exact search.

Every group is one compressor call and one message. In the reference timeline (D-42) a partial solution
that has grouped the tensors before some cut is fully described by

    e = encode time so far,  E = when the network becomes free,  t = decode time so far

and every continuation ends at max(E + X, e + Y) + t + Z, where X, Y, Z depend on the continuation alone. So only the
two sums p = E + t and q = e + t matter, smaller is never worse in either, and keeping per cut the partial solutions
that no other one beats in both is exact for encode, decode and message curves of any shape. With affine curves q only
counts the groups, and this is the dynamic program V[k][j] of D-49.

To keep the fronts short, a partial solution is dropped when a lower bound of all its continuations exceeds the best
known complete solution; passes over few of the cuts, and then over all near those of the solution, find a good one. The
number of groups is free; `best_by_count` is the program for those who want a given number.

Source: D-49 (a reconstruction: the authors' FindOptFusion is not public).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from ssfx.core.lazy import numpy as np
from ssfx.planning.costs import Costs
from ssfx.planning.profile import Profile
from ssfx.schemes.search.contiguous_groups import group_curves
from ssfx.schemes.search.shared import shared
from ssfx.schemes.transport import Transport

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ssfx.schemes.search.contiguous_groups import Seconds

    Array = NDArray[np.float64]
    Ints = NDArray[np.int64]


MAX_CUTS = 1024
"""Larger models are cut only at this many positions, evenly spread over elements and backward time."""
TICK_S = 1e-12
"""Ends that differ by less are equal: the same sums, added in another order."""
_COARSE_CUTS = 48  # cuts of the first pass
_NARROW = 8  # width of its fronts
_NUM_SHARES = 5  # lines in the lower bound
_MANY, _WEIGHTS = 128, (1.0, 0.1, 10.0, 0.0, 0.01, 100.0)


@dataclass(frozen=True)
class Fusion:
    """Where each group ends (the last entry is the number of tensors), and the predicted end of the step in seconds."""

    stops: tuple[int, ...]
    total_s: float

    @property
    def groups(self) -> list[range]:
        """Positions of each group's tensors."""
        return [range(a, b) for a, b in pairwise((0, *self.stops))]


def joint_groups(part: Profile, costs: Costs, transport: Transport) -> list[range]:
    """Return the positions of each group of the best fusion, when every group is compressed jointly.

    What its groups take is worked out once for all networks: they are those between any two cuts of the profile.
    """

    def once(key: object, asked: Seconds) -> Seconds:
        return lambda sizes: shared(part, None, ("between cuts", key), lambda: asked(sizes))

    return shared(
        part,
        costs,
        ("joint groups", transport),
        lambda: best_fusion(part.ready_gap_s, part.numel, **group_curves(part, costs, transport, once)).groups,
    )


def best_fusion(
    gap_s: Sequence[float], numel: Sequence[int], *, encode: Seconds, decode: Seconds, message: Seconds
) -> Fusion:
    """Return the contiguous grouping that ends first; ties go to fewer groups, then to the larger last group.

    `gap_s` and `numel` are per tensor in backward order. `encode`, `decode` and `message` map arrays of group sizes in
    elements to seconds. Tensors without elements stay with their successor. Exact for up to MAX_CUTS tensors, O(L^2)
    memory; beyond that, exact among the candidate cuts.
    """
    cuts = candidate_cuts(np.asarray(gap_s, dtype=float), np.asarray(numel, dtype=float))
    ready_s = np.concatenate([[0.0], np.cumsum(gap_s)])[cuts]
    total = np.concatenate([[0], np.cumsum(numel, dtype=np.int64)])[cuts]
    search = _Search(ready_s, *pair_costs(total, encode, decode, message))
    stops, total_s = search.forward(search.good_s(), width=None)
    return Fusion(tuple(int(cuts[stop]) for stop in stops), total_s)


def candidate_cuts(gap_s: Array, numel: Array) -> Ints:
    """Return 0, where the search may cut, and the number of tensors."""
    inner = np.flatnonzero(numel > 0)[:-1] + 1  # behind every tensor with elements, except the last of them
    if len(inner) >= MAX_CUTS:
        work = np.cumsum(numel) / numel.sum() + np.cumsum(gap_s) / max(float(gap_s.sum()), TICK_S)
        marks = np.linspace(0, work[-1], MAX_CUTS + 1)[1:-1]
        inner = _distinct(inner[np.searchsorted(work[inner - 1], marks).clip(max=len(inner) - 1)])
    return np.concatenate([[0], inner, [len(numel)]]).astype(np.int64)


def _distinct(ascending: Ints) -> Ints:
    # np.unique would import numpy.ma here, which takes a fifth as long as numpy itself.
    distinct: Ints = ascending[np.concatenate([[True], ascending[1:] != ascending[:-1]])]
    return distinct


def pair_costs(total: Ints, *curves: Seconds) -> list[Array]:
    """Return for every curve cost[j, i], the seconds of the group between cuts i < j; infinite elsewhere."""
    below = np.tri(len(total), k=-1, dtype=bool)
    sizes = (total[:, None] - total)[below].astype(float)
    costs = []
    for seconds in curves:
        cost = np.full(below.shape, np.inf)
        cost[below] = seconds(sizes)
        costs.append(cost)
    return costs


class _Search:
    """Forward over the cuts, keeping for each the partial solutions (labels) that no other one beats."""

    def __init__(self, ready_s: Array, encode: Array, decode: Array, message: Array, rest: Array | None = None) -> None:
        self.ready_s, self.last = ready_s, len(ready_s) - 1
        self.encode, self.decode, self.message = encode, decode, message
        self.shares = np.linspace(0.0, 1.0, _NUM_SHARES)[:, None]  # along the first axis: numpy is fast along the last
        self.rest = self._cheapest_rest() if rest is None else rest

    def good_s(self) -> float:
        """Return the end of a good solution: the best of few cuts, evenly spread, and then of all near its own."""
        cuts = _distinct(np.linspace(0, self.last, _COARSE_CUTS + 1).astype(np.int64))
        stops, good_s = self._among(cuts).forward(np.inf, width=_NARROW)
        reach, near = -(-self.last // (2 * _COARSE_CUTS)), np.zeros(self.last + 1, dtype=bool)
        for stop in (0, *cuts[stops].tolist()):
            near[max(0, stop - reach) : stop + reach + 1] = True
        _, near_s = self._among(np.flatnonzero(near)).forward(np.inf, width=_NARROW)
        return min(good_s, near_s)

    def _among(self, cuts: Ints) -> _Search:
        """Return the search among some of the cuts: its solutions are solutions of this one, and so are its bounds."""
        among = np.ix_(cuts, cuts)
        encode, decode, message = (table[among] for table in (self.encode, self.decode, self.message))
        return _Search(self.ready_s[cuts], encode, decode, message, self.rest[:, cuts])

    def forward(self, best_s: float, width: int | None) -> tuple[list[int], float]:
        """Return stops and end of the best solution; exact if one ends by `best_s` and `width` is None.

        `width` limits the length of the fronts.
        """
        p, q = np.zeros(1), np.zeros(1)
        count, cut, parent = (np.zeros(1, dtype=np.int64) for _ in range(3))
        for j in range(1, self.last + 1):
            # E' = max(E, ready + e + encode) + message; e' = e + encode; t' = t + decode; p = E + t, q = e + t.
            encode, decode = self.encode[j, cut], self.decode[j, cut]
            new_p = np.maximum(p, self.ready_s[j] + q + encode) + decode + self.message[j, cut]
            new_q = q + encode + decode
            # A continuation ends no earlier than any weighted mean of its two branches says (`_cheapest_rest`).
            bound = (new_q + self.shares * (new_p - new_q) + self.rest[:, j, None]).max(axis=0)
            keep = np.flatnonzero(bound <= best_s + TICK_S)
            if not len(keep):
                continue
            if len(keep) > 1:
                keep = keep[undominated(new_p[keep], new_q[keep], count[keep])]
            if width is not None:
                keep = keep[np.argsort(bound[keep], kind="stable")[:width]]
            p, q = np.append(p, new_p[keep]), np.append(q, new_q[keep])
            count, parent = np.append(count, count[keep] + 1), np.append(parent, keep)
            cut = np.append(cut, np.full(len(keep), j))
        ends = np.flatnonzero(cut == self.last)
        label = int(ends[np.lexsort((count[ends], np.rint(p[ends] / TICK_S)))[0]])
        total_s, stops = float(p[label]), []
        while label:
            stops.append(int(cut[label]))
            label = int(parent[label])
        return stops[::-1], total_s

    def _cheapest_rest(self) -> Array:
        """Return rest[s, j]: a solution (p, q) at cut j ends no earlier than s * p + (1 - s) * q + rest[s, j].

        Each share s weighs the two branches of max(p, ready + q + encode); a weighted mean never exceeds the maximum.
        Backward over the cuts; at the last one the end is p, and p >= q + ready.
        """
        s = self.shares
        rest = np.repeat((1 - s) * self.ready_s[-1], self.last + 1, axis=1)
        for i in range(self.last - 1, -1, -1):
            later = slice(i + 1, None)
            ready = self.ready_s[later]
            encode, decode, message = (cost[later, i] for cost in (self.encode, self.decode, self.message))
            behind = s * (ready + message) + rest[:, later]
            behind = np.maximum.accumulate(behind[::-1], axis=0)[::-1]  # at the next cut any larger share may do
            rest[:, i] = (behind + decode + (1 - s) * encode - s * ready).min(axis=1)
        return rest


def undominated(p: Array, q: Array, count: Ints) -> Ints:
    """Return the positions of the solutions that no other one beats in p and q; of equal ones the earliest cut's."""
    if len(p) <= _MANY:
        return _front(p, q, count)
    rest = np.arange(len(p))
    for weight in _WEIGHTS:  # what a good one beats in both need not be sorted
        best = rest[np.argmin(p[rest] + weight * q[rest])]
        rest = rest[(p[rest] < p[best]) | (q[rest] < q[best] + 2 * TICK_S)]
    found: Ints = rest[_front(p[rest], q[rest], count[rest])]
    return found


def _front(p: Array, q: Array, count: Ints) -> Ints:
    order = np.lexsort((count, np.rint(p / TICK_S), np.rint(q / TICK_S)))
    ordered = p[order]
    lowest = np.minimum.accumulate(ordered)
    kept: Ints = order[np.concatenate([[True], ordered[1:] < lowest[:-1] - TICK_S])[: len(p)]]
    return kept


# ---- counts of groups -----------------------------------------------------------------------------------------------


def best_by_count(
    gap_s: Sequence[float], numel: Sequence[int], *, encode: Seconds, decode: Seconds, message: Seconds
) -> Iterator[Fusion]:
    """Yield the best grouping into exactly 1, 2, 3, ... groups, as many as the cuts of `best_fusion` allow.

    Partial solutions of k groups extend those of k - 1; only equal counts are compared, so no bound drops any. With
    affine curves every cut has a single one and this is V[k][j] (D-49).
    """
    cuts = candidate_cuts(np.asarray(gap_s, dtype=float), np.asarray(numel, dtype=float))
    ready_s = np.concatenate([[0.0], np.cumsum(gap_s)])[cuts]
    total = np.concatenate([[0], np.cumsum(numel, dtype=np.int64)])[cuts]
    encode_s, decode_s, message_s = pair_costs(total, encode, decode, message)
    last = len(cuts) - 1
    p, q, cut = np.zeros(1), np.zeros(1), np.zeros(1, dtype=np.int64)
    layers: list[tuple[Ints, Ints]] = [(cut, cut)]  # of every layer's labels: the cut, the parent in the layer before
    for num_groups in range(1, last + 1):
        grown: list[tuple[Array, Array, Ints, Ints]] = []
        for j in range(num_groups, last + 1):
            before = int(np.searchsorted(cut, j))
            at = cut[:before]
            taken_s = encode_s[j, at], decode_s[j, at]
            new_p = np.maximum(p[:before], ready_s[j] + q[:before] + taken_s[0]) + taken_s[1] + message_s[j, at]
            new_q = q[:before] + taken_s[0] + taken_s[1]
            keep = undominated(new_p, new_q, np.zeros(before, dtype=np.int64))
            grown.append((new_p[keep], new_q[keep], np.full(len(keep), j), keep))
        p, q, cut, parent = (np.concatenate(column) for column in zip(*grown, strict=True))
        layers.append((cut, parent))
        ends = np.flatnonzero(cut == last)
        label = int(ends[np.argmin(np.rint(p[ends] / TICK_S))])
        total_s, stops = float(p[label]), []
        for layer_cut, layer_parent in layers[:0:-1]:
            stops.append(int(cuts[layer_cut[label]]))
            label = int(layer_parent[label])
        yield Fusion(tuple(stops[::-1]), total_s)
