"""What every method costs for every bucket between two cuts: the prices of sums over tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ssfx.compressors import build
from ssfx.compressors.lowrank import LowRank
from ssfx.core.lazy import numpy as np
from ssfx.planning.costs import Costs
from ssfx.planning.profile import Profile
from ssfx.schemes.search.auto_methods import Kind, Method, chooses
from ssfx.schemes.search.contiguous_groups import MAX_INDEX
from ssfx.schemes.search.ssfusion_selection import LEAST_DENSITY, choose_host
from ssfx.simulator.pricing.features import (
    CALLS,
    FILLED,
    FIRST,
    NUMEL,
    PACKED,
    PIECES,
    REST,
    SEGMENTS,
    TENSORS,
    by_size,
    of_plain,
    of_sizes,
    of_tensors,
)
from ssfx.simulator.pricing.prices import Prices, sums_pairs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]

SAMPLES = 24
"""Sizes at which an exchange of several phases is priced; between them its seconds are taken to be linear."""

Found = tuple["Array", "Array", "Array"]
"""Seconds of the device during backward, of the network, of decoding."""


@dataclass(frozen=True)
class Tables:
    """Seconds [method, end, start] of the bucket between two cuts: infinite where there can be none.

    device: what the bucket takes of the device during backward. message: of the network. decode: of the device when
    everything has arrived. host_s: when the last of it is back from the host, 0 if none is there. ready_s: backward and
    its hooks up to each cut. after_s: what every plan takes at the end.
    """

    cuts: Ints
    ready_s: Array
    device: Array
    message: Array
    decode: Array
    host_s: Array
    after_s: float


class TableMaker:
    """Works out `Tables` for one dtype's profile."""

    def __init__(self, part: Profile, costs: Costs, cuts: Ints) -> None:
        self.part, self.costs, self.cuts = part, costs, cuts
        self.prices = Prices(costs)
        self.ends, self.starts = np.tril_indices(len(cuts), -1)
        self.numel = np.array(part.numel, dtype=float)
        self.nbytes = np.array([spec.nbytes for spec in part.tensors], dtype=float)
        self.shapes = [spec.shape for spec in part.tensors]
        self._features: dict[tuple[str, float], Array] = {}
        self._masks: dict[tuple[Kind, bytes], Found] = {}

    def tables(self, methods: Sequence[Method]) -> Tables:
        """Return the tables of `methods`, in their order."""
        over, n = self.costs.overheads, len(self.cuts)
        shape = (len(methods), n, n)
        device, message, decode = (np.full(shape, np.inf) for _ in range(3))
        host_s = np.zeros(shape)
        for at, method in enumerate(methods):
            taken = np.array([method.takes(spec) for spec in self.part.tensors])
            found = self._kind(method.main, taken)
            if method.small is not None:
                other = self._kind(method.small, ~taken)
                found = tuple(a + b for a, b in zip(found, other, strict=True))  # type: ignore[assignment]
            for table, values in zip((device, message, decode), found, strict=True):
                table[at, self.ends, self.starts] = values
            if method.main.on_host:
                host_s[at, self.ends, self.starts] = self._back_s(method.main)
        ready_s = np.concatenate([[0.0], np.cumsum(np.array(self.part.ready_gap_s) + over.hook_s)])[self.cuts]
        after_s = over.result_s * len(self.part.tensors) + over.result_s_per_byte * float(self.nbytes.sum())
        return Tables(self.cuts, ready_s, device, message, decode, host_s, after_s)

    def on_host(self, method: Method) -> Method | None:
        """Return the method with part of its compression on the host, by the rule of SSFusion; None if no part is.

        The rule looks at all of backward as one buffer, with the tensors dense that the method sends apart.
        """
        kind = method.main
        if kind.calls != "each" or kind.collective != "all_gather" or not chooses(str(kind.compressor)):
            return None
        # SSFusion, section IV-C; where a message has one call at its end, no encode delays what comes before.
        table = self._of_tensors(kind)
        dense = np.array([not method.takes(spec) for spec in self.part.tensors]) | (table[CALLS] == 0)
        encode_s = self.prices.call_s(str(kind.compressor), table) * (not self.prices.batched)
        taken_s = self._way_s(kind).sum(axis=0)
        chosen = choose_host(
            self.part.ready_gap_s, encode_s.tolist(), taken_s.tolist(), frozenset(np.flatnonzero(dense).tolist())
        )
        names = frozenset(self.part.tensors[i].name for i in chosen)
        return replace(method, main=replace(kind, on_host=names)) if names else None

    def _way_s(self, kind: Kind) -> Array:
        """Return the seconds of each tensor on its way over the host: out, compressed there, back."""
        spec, table = str(kind.compressor), self._of_tensors(kind)
        pcie = 0.0 if self.costs.codec(spec).host_copies else self.costs.pcie_s_per_byte
        work_s = self.prices.host_s(spec, table)
        return np.stack([4 * table[NUMEL] * pcie, work_s, (table[FIRST] + table[REST]) * pcie])

    def _hosted(self, kind: Kind) -> Mask:
        return np.array([spec.name in kind.on_host for spec in self.part.tensors])

    def _back_s(self, kind: Kind) -> Array:
        """Return when the last of each bucket is back from the host if nothing but backward delays what goes there."""
        hosted = self._hosted(kind)
        at = np.flatnonzero(hosted)
        arrived_s = np.cumsum(np.array(self.part.ready_gap_s) + self.costs.overheads.hook_s)[at]
        back_s = arrived_s + self._way_s(kind)[:, at].sum(axis=0)
        last = np.concatenate([[0], np.cumsum(hosted)])[self.cuts]  # hosted tensors before each cut
        among = last[self.ends] > last[self.starts]
        return np.where(among, back_s[np.maximum(last[self.ends] - 1, 0)], 0.0)

    # ---- one kind on the tensors of a mask --------------------------------------------------------------------------

    def _kind(self, kind: Kind, mask: Mask) -> Found:
        key = (kind, mask.tobytes())
        if key not in self._masks:
            self._masks[key] = (self._compensated if kind.compensates else self._together)(kind, mask)
        return self._masks[key]

    def _compensated(self, kind: Kind, mask: Mask) -> Found:
        """Between the seconds at the density asked for and at the least one: they are close to linear in it."""
        least = min(kind.density, LEAST_DENSITY)
        asked, fewest = (
            self._kind(replace(kind, density=density, compensates=False), mask) for density in (kind.density, least)
        )
        whole, dense = self._between(np.stack([self.numel, np.where(mask, 0.0, self.numel)]))
        both = (dense > 0) & (dense < whole) & (kind.density > least)
        density = (kind.density * whole[both] - dense[both]) / (whole - dense)[both]
        share = (kind.density - density.clip(least, kind.density)) / (kind.density - least)
        found = tuple(table.copy() for table in asked)
        for table, low in zip(found, fewest, strict=True):
            there = np.isfinite(table[both])
            at = np.flatnonzero(both)[there]
            table[at] += share[there] * (low[at] - table[at])
        return found  # type: ignore[return-value]

    def _between(self, table: Array) -> Array:
        """Return the sums over every bucket's tensors, the last axis."""
        total = np.zeros((*table.shape[:-1], len(self.cuts)))
        np.cumsum(np.add.reduceat(table, self.cuts[:-1], axis=-1), axis=-1, out=total[..., 1:])
        between: Array = total[..., self.ends] - total[..., self.starts]
        return between

    def _of_tensors(self, kind: Kind) -> Array:
        """Return the features of every tensor as a segment of the kind."""
        if kind.compressor is None:
            return of_plain(self.numel, self.nbytes)
        key = (kind.compressor, kind.density)
        if key not in self._features:
            self._features[key] = of_tensors(kind.compressor, self.shapes, self.numel, kind.density)
        table = self._features[key].copy()
        table[PACKED] = 1.0  # those without elements ride along
        if kind.calls == "joint" and isinstance(build(kind.compressor), LowRank):
            table[PIECES] = [len(build(kind.compressor).split([shape]).matrices) for shape in self.shapes]  # type: ignore[attr-defined]
        return table

    def _together(self, kind: Kind, mask: Mask) -> Found:
        """One message for all tensors of the mask in a bucket."""
        over, tensors = self.costs.overheads, np.where(mask, self._of_tensors(kind), 0.0)
        sums = self._between(tensors)
        there = sums[NUMEL] > 0
        if kind.calls == "joint" and kind.compressor is not None:
            self._join(kind, sums)
        device, decode = over.lane_s + over.fill_s_per_byte * sums[FILLED], np.zeros(len(there))
        if kind.compressor is not None:
            here, calls = sums, tensors
            if kind.on_host:
                there_too = self._hosted(kind) & mask
                calls = np.where(there_too, 0.0, tensors)
                here = self._between(calls)
                device = device + over.offload_s * self._between(there_too.astype(float))
            device = device + self._call_s(kind, calls, here) + over.add_s * here[PACKED]
            device = np.where(sums[NUMEL] > MAX_INDEX, np.inf, device)
            decode = self._decode_s(kind, tensors, sums)
        message = self._exchange_s(kind, sums, sums[NUMEL] if kind.compressor else sums[REST])
        device, message, decode = (np.where(there, one, 0.0) for one in (device, message, decode))
        return device, message, decode

    def _join(self, kind: Kind, sums: Array) -> None:
        """Make one segment, and one compressor call, of what was added up over tensors."""
        spec, packed, there = str(kind.compressor), sums[PACKED].copy(), sums[NUMEL] > 0
        if by_size(spec):
            sums[:] = of_sizes(build(spec), sums[NUMEL], kind.density) * there
        sums[SEGMENTS] = sums[CALLS] = there
        sums[TENSORS] = sums[PACKED] = packed
        sums[PIECES] = np.maximum(1.0, sums[PIECES]) if isinstance(build(spec), LowRank) else 1.0

    # ---- seconds ----------------------------------------------------------------------------------------------------

    def _call_s(self, kind: Kind, tensors: Array, sums: Array) -> Array:
        """Return the seconds of compressing: a call for every segment, or one for all."""
        spec = str(kind.compressor)
        if kind.calls == "each" and not self.prices.batched:
            return self._between(self.prices.call_s(spec, tensors))
        return self.prices.call_s(spec, sums)

    def _decode_s(self, kind: Kind, tensors: Array, sums: Array) -> Array:
        """Return the seconds of decoding, and of adding pairs straight into the gradients instead of averaging."""
        spec, over = str(kind.compressor), self.costs.overheads
        if kind.calls == "each" and not self.prices.batched:
            seconds = self._between(self.prices.decode_s(spec, kind.collective, tensors))
        else:
            seconds = self.prices.decode_s(spec, kind.collective, sums)
        pairs = sums_pairs(kind.collective, (spec,))
        return seconds + (over.sum_s - over.result_s) * sums[PACKED] if pairs else seconds

    def _exchange_s(self, kind: Kind, table: Array, sizes: Array) -> Array:
        """Return the seconds of messages; of exchanges of several phases exact for some sizes, linear between them."""
        price = self.prices.exchange_s
        if kind.collective in self.costs.exchange or not len(sizes):
            return price(kind.collective, kind.compressor, table)
        known, first = np.unique(sizes, return_index=True)
        if len(known) > SAMPLES:
            marks = np.geomspace(max(1.0, known[known > 0][0]), known[-1], SAMPLES)
            at = np.unique(np.searchsorted(known, marks).clip(max=len(known) - 1))
            known, first = known[at], first[at]
        return np.interp(sizes, known, price(kind.collective, kind.compressor, table[:, first]))
