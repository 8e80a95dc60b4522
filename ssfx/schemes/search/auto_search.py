"""The search of `auto`: where buckets end and by which method each is sent, by labels over the cuts of the backward.

In the reference timeline a partial plan up to some cut is described by p, the time at which the network is free plus
all decoding so far, and q, what the device has taken besides backward plus the same decoding; see `exact_groups`. Every
continuation ends no earlier for a smaller p or q, so the partial plans that no other one beats in both are all that a
search needs: with as many labels as there are it is exact among the buckets between these cuts. `WIDTH` bounds their
number, which real models do not reach.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ssfx.core.lazy import numpy as np
from ssfx.planning.profile import Profile
from ssfx.schemes.search.auto_tables import Tables
from ssfx.schemes.search.exact_groups import TICK_S, undominated

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Ints = NDArray[np.int64]

MAX_CUTS = 64
"""Buckets end at no more than so many places, the latest tensors' own among them; smaller tensors are merged."""
LATEST = 8
"""How many of the last tensors are cut apart at least: what is sent after backward decides most."""
WIDTH = 192
"""Most partial plans that are kept for a cut."""
NARROW = 6
"""The same in the first pass."""
SLACK = 0.01
"""How much later than the plan of the first pass others may end that are still looked at."""


@dataclass(frozen=True)
class Choice:
    """Buckets as positions of tensors, the method of each by number, and the end of the step in seconds."""

    buckets: tuple[range, ...]
    methods: tuple[int, ...]
    total_s: float


def candidate_cuts(part: Profile) -> Ints:
    """Return 0, where a bucket may end, and the number of tensors: even steps of elements and backward time.

    The last tensors and the largest ones are cut apart as far as `MAX_CUTS` allows.
    """
    numel, gap_s = np.array(part.numel, dtype=float), np.array(part.ready_gap_s)
    inner = np.flatnonzero(numel > 0)[:-1] + 1  # behind every tensor with elements, except the last of them
    if len(inner) >= MAX_CUTS:
        work = np.cumsum(numel) / numel.sum() + np.cumsum(gap_s) / max(float(gap_s.sum()), TICK_S)
        marks = np.linspace(0, work[-1], MAX_CUTS - LATEST + 1)[1:-1]
        even = inner[np.searchsorted(work[inner - 1], marks).clip(max=len(inner) - 1)]
        inner = np.array(sorted({*even.tolist(), *inner[-LATEST:].tolist()}))
    return np.concatenate([[0], inner, [len(numel)]]).astype(np.int64)


def best_choices(tables: Tables, count: int = 1, width: int = WIDTH, occupancy: float = 0.0) -> list[Choice]:
    """Return up to `count` ways to cut and to send, the fastest first; ties go to fewer buckets.

    With `width` at least the number of labels the first one is the best there is between the cuts. A first pass with
    few labels finds a good plan; later, what cannot lead to one as good is dropped. `occupancy`: the share of the
    device that an exchange takes, as if all of it went on during backward; it is in the times that are returned.
    """
    if occupancy:
        tables = replace(tables, device=tables.device + occupancy * tables.message)
    rest = _Rest.of(tables)
    good = _forward(tables, rest, np.inf, NARROW, 1)[0]
    return _forward(tables, rest, (1 + SLACK) * (good.total_s - tables.after_s), width, count)


@dataclass(frozen=True)
class _Rest:
    """The least that follows each cut: of the network and decoding, and of the device and decoding."""

    network_s: Array
    device_s: Array

    @classmethod
    def of(cls, tables: Tables) -> _Rest:
        found = []
        for table in (tables.message, tables.device):
            best, last = (table + tables.decode).min(axis=0), len(tables.cuts) - 1
            total = np.zeros(last + 1)
            for start in range(last - 1, -1, -1):
                total[start] = (best[start + 1 :, start] + total[start + 1 :]).min()
            found.append(total)
        return cls(*found)


def _forward(tables: Tables, rest: _Rest, best_s: float, width: int, count: int) -> list[Choice]:
    """Go through the cuts with up to `width` labels each; plans that end after `best_s` may be lost."""
    # As in exact_groups: e is encoding so far, E when the network is free, t decoding so far; p = E + t, q = e + t.
    last = len(tables.cuts) - 1
    p, q = np.zeros(1), np.zeros(1)
    buckets, cut, parent, method = (np.zeros(1, dtype=np.int64) for _ in range(4))
    for end in range(1, last + 1):
        encode, decode = tables.device[:, end, cut], tables.decode[:, end, cut]
        # A bucket from every label's cut to this one, by every method: e' = e + encode, t' = t + decode,
        # E' = max(E, ready + e', back from the host) + message. What is decoded before does not delay the host.
        new_q = (q + encode + decode).ravel()
        ready_s = np.maximum(tables.ready_s[end] + q + encode, tables.host_s[:, end, cut])
        new_p = (np.maximum(p, ready_s) + decode + tables.message[:, end, cut]).ravel()
        ends_s = np.maximum(new_p + rest.network_s[end], tables.ready_s[-1] + new_q + rest.device_s[end])
        # What cannot end by `best_s` goes, then what another label beats in both p and q, then the least promising.
        keep = np.flatnonzero(ends_s <= best_s if np.isfinite(best_s) else np.isfinite(ends_s))
        more = buckets[keep % len(cut)] + 1
        if end == last:
            keep = keep[_several(new_p[keep], more, count)]
        elif len(keep):
            keep = keep[undominated(new_p[keep], new_q[keep], more)]
        if len(keep) > width:
            keep = keep[np.argsort(ends_s[keep], kind="stable")[:width]]
        used, start = np.divmod(keep, len(cut))
        p, q = np.append(p, new_p[keep]), np.append(q, new_q[keep])
        buckets, parent = np.append(buckets, buckets[start] + 1), np.append(parent, start)
        method, cut = np.append(method, used), np.append(cut, np.full(len(keep), end))
    ends = np.flatnonzero(cut == last)
    return [_traced(tables, int(label), float(p[label]), cut, parent, method) for label in ends]


def _several(total_s: Array, buckets: Ints, count: int) -> Ints:
    """Return the positions of the `count` least totals."""
    order = np.lexsort((buckets, np.rint(total_s / TICK_S)))[:count]
    kept: Ints = order[np.isfinite(total_s[order])]
    return kept


def _traced(tables: Tables, label: int, total_s: float, cut: Ints, parent: Ints, method: Ints) -> Choice:
    found, chosen = [], []
    while label:
        before = int(parent[label])
        found.append(range(int(tables.cuts[cut[before]]), int(tables.cuts[cut[label]])))
        chosen.append(int(method[label]))
        label = before
    return Choice(tuple(reversed(found)), tuple(reversed(chosen)), total_s + tables.after_s)
