"""What every method costs for every bucket between two cuts: arrays of seconds, worked out from sums over tensors.

The prices are those of `ssfx.pricing`, message class by message class; a test holds what the search adds up equal to
what `evaluate` charges for the plan that comes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ssfx.collectives import Reducer, collectives
from ssfx.compressors import Compressor, build
from ssfx.compressors.base import VALUE_BYTES
from ssfx.compressors.lowrank import LowRank
from ssfx.core.lazy import numpy as np
from ssfx.planning.costs import Costs
from ssfx.planning.plan import Bucket, Lane, Plan, Segment, TensorSpec
from ssfx.planning.profile import Profile
from ssfx.pricing.message_sizes import payload_layout
from ssfx.pricing.plan_prices import Prices, SelectionStats
from ssfx.schemes.search.auto_methods import Kind, Method
from ssfx.schemes.search.contiguous_groups import MAX_INDEX

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ssfx.pricing.plan_prices import Charge

    Array = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]

SAMPLES = 24
"""Sizes at which an exchange of several phases is priced; between them its seconds are taken to be linear."""
SHAPES = 256
"""How many shapes of tensors are priced one by one; of models with more, sizes in between are interpolated."""
_FIELDS = (
    "numel",
    "tensors",
    "filled",
    "first",
    "rest",
    "work",
    "pieces",
    "entries",
    "called",
    "decoded",
)


@dataclass(frozen=True)
class Tables:
    """Seconds [method, end, start] of the bucket between two cuts: infinite where there can be none.

    device: what the bucket takes of the device during backward. message: of the network. decode: of the device when
    everything has arrived. ready_s: backward and its hooks up to each cut. after_s: what every plan takes at the end.
    """

    cuts: Ints
    ready_s: Array
    device: Array
    message: Array
    decode: Array
    after_s: float


class TableMaker:
    """Works out `Tables` for one dtype's profile."""

    def __init__(self, part: Profile, costs: Costs, cuts: Ints) -> None:
        self.part, self.costs, self.cuts = part, costs, cuts
        names = tuple(spec.name for spec in part.tensors)
        whole = (Bucket((Lane("all_reduce", (Segment(names),)),)),)
        launch = ((0, 0),) if any(part.numel) else ()
        self.plan = Plan("auto", costs.world_size, part.tensors, whole, launch)
        self.prices = Prices(self.plan, costs, SelectionStats())
        self.ends, self.starts = np.tril_indices(len(cuts), -1)
        self.numel = np.array(part.numel, dtype=float)
        self._rows: dict[Kind, Array] = {}
        self._masks: dict[tuple[Kind, bytes], tuple[Array, Array, Array]] = {}

    def tables(self, methods: Sequence[Method]) -> Tables:
        """Return the tables of `methods`, in their order."""
        over, n = self.costs.overheads, len(self.cuts)
        shape = (len(methods), n, n)
        device, message, decode = (np.full(shape, np.inf) for _ in range(3))
        for at, method in enumerate(methods):
            taken = (self.numel >= method.threshold) | (method.small is None)
            found = self._kind(method.main, taken)
            if method.small is not None:
                other = self._kind(method.small, ~taken)
                found = tuple(a + b for a, b in zip(found, other, strict=True))  # type: ignore[assignment]
            for table, values in zip((device, message, decode), found, strict=True):
                table[at, self.ends, self.starts] = values
        ready_s = np.concatenate([[0.0], np.cumsum(np.array(self.part.ready_gap_s) + over.hook_s)])[self.cuts]
        total_bytes = sum(spec.nbytes for spec in self.part.tensors)
        after_s = over.result_s * len(self.part.tensors) + over.result_s_per_byte * total_bytes
        return Tables(self.cuts, ready_s, device, message, decode, after_s)

    # ---- one kind on the tensors of a mask --------------------------------------------------------------------------

    def _kind(self, kind: Kind, mask: Mask) -> tuple[Array, Array, Array]:
        key = (kind, mask.tobytes())
        if key not in self._masks:
            self._masks[key] = self._alone(kind, mask) if kind.calls == "alone" else self._together(kind, mask)
        return self._masks[key]

    def _between(self, values: Array) -> Array:
        """Return the sum over every bucket's tensors."""
        total = np.concatenate([[0.0], np.cumsum(values)])[self.cuts]
        between: Array = total[self.ends] - total[self.starts]
        return between

    def _alone(self, kind: Kind, mask: Mask) -> tuple[Array, Array, Array]:
        """Every tensor is a message: what each costs, added up. Equal sizes are priced once."""
        if kind not in self._rows:
            self._rows[kind] = self._by_shape(kind, lambda spec: self._lane(next(kind.lanes([spec]))), 3)
        device, message, decode = (self._between(np.where(mask, row, 0.0)) for row in self._rows[kind])
        return device, message, decode

    def _by_shape(self, kind: Kind, of: Callable[[TensorSpec], Sequence[float]], width: int) -> Array:
        """Return `width` numbers for every tensor with elements, zeros for others; tensors of one shape share them.

        Of a model with very many shapes some sizes are worked out and numbers in between are taken to be linear, unless
        the shape matters.
        """
        rows = np.zeros((width, len(self.part.tensors)))
        alike: dict[tuple[int, ...], list[int]] = {}
        for i, spec in enumerate(self.part.tensors):
            if spec.numel:
                alike.setdefault(spec.shape, []).append(i)
        factors = kind.compressor is not None and isinstance(build(kind.compressor), LowRank)
        if len(alike) <= SHAPES or factors:
            for at in alike.values():
                rows[:, at] = np.array(of(self.part.tensors[at[0]]), dtype=float)[:, None]
            return rows
        first = sorted((at[0] for at in alike.values()), key=lambda i: self.part.tensors[i].numel)
        chosen = [first[n] for n in np.linspace(0, len(first) - 1, SHAPES).astype(np.int64)]
        known = np.array([of(self.part.tensors[i]) for i in chosen], dtype=float).T
        sizes, at_size = np.unique(self.numel[chosen], return_index=True)
        filled = self.numel > 0
        for row, values in zip(rows, known, strict=True):
            row[filled] = np.interp(self.numel[filled], sizes, values[at_size])
        return rows

    def _lane(self, lane: Lane) -> tuple[float, float, float]:
        """Return device, network and decoding of one message of one segment, as `ssfx.pricing` charges them."""
        (segment,) = lane.segments
        if segment.compressor and self.plan.numel(segment) > MAX_INDEX:
            return np.inf, np.inf, np.inf
        over = self.costs.overheads
        device = over.lane_s + self.prices.encode_s([segment]) + over.add_s * len(segment.tensors)
        decode = self.prices.decode_s(lane)
        if self.prices.sums_pairs(lane):
            decode += (over.sum_s - over.result_s) * len(segment.tensors)
        return device, seconds(self.prices.charges(lane)), decode

    def _together(self, kind: Kind, mask: Mask) -> tuple[Array, Array, Array]:
        """One message for all tensors of the mask in a bucket."""
        sums = self._sums(kind, mask)
        there = sums["numel"] > 0
        over = self.costs.overheads
        device = over.lane_s + over.fill_s_per_byte * sums["filled"]
        decode = np.zeros(len(there))
        if kind.compressor is not None:
            compressor = build(kind.compressor)
            if kind.leaves_tensors_out:
                self._jointly(kind, compressor, sums)
            there &= (sums["tensors"] > 0) | (kind.plain_below == 0)
            device = device + self._encode(kind, sums) + over.add_s * sums["tensors"]
            decode = self._decode(kind, compressor, sums)
            gathered = not collectives.build(kind.collective).additive_only
            if gathered and compressor.sparse and not compressor.vote and not self._reduces(kind):
                decode = decode + (over.sum_s - over.result_s) * sums["tensors"]
            device = np.where(sums["numel"] > MAX_INDEX, np.inf, device)
        message = self._message(kind, mask, sums)
        # A gather of nothing but dense values is none of the methods.
        nothing = np.inf if kind.plain_below else 0.0
        device, message, decode = (np.where(there, one, nothing) for one in (device, message, decode))
        return device, message, decode

    def _sums(self, kind: Kind, mask: Mask) -> dict[str, Array]:
        """Return the sums over every bucket's tensors of what prices depend on."""

        def of(spec: TensorSpec) -> list[float]:
            found = self._of_tensor(kind, spec.shape, spec.numel, spec.nbytes)
            return [found.get(name, 0.0) for name in _FIELDS]

        if kind not in self._rows:
            rows = self._by_shape(kind, of, len(_FIELDS))
            if kind.compressor is not None and not kind.plain_below:
                rows[_FIELDS.index("tensors")] = 1.0  # those without elements ride along
            self._rows[kind] = rows
        every = zip(_FIELDS, self._rows[kind], strict=True)
        return {name: self._between(np.where(mask, row, 0.0)) for name, row in every}

    def _of_tensor(self, kind: Kind, shape: tuple[int, ...], numel: int, nbytes: int) -> dict[str, float]:
        found = {"numel": numel, "tensors": 1.0}
        if kind.compressor is None:
            return {**found, "filled": nbytes, "rest": nbytes}
        if not numel:
            return found
        if numel < kind.plain_below:
            return {"numel": numel, "filled": nbytes, "rest": nbytes}
        compressor, by_elements = build(kind.compressor), not self.costs.times
        layout = compressor.layout_of([shape], kind.density)
        used = compressor.cycle([shape])
        unused = VALUE_BYTES[layout.value_dtype] * (layout.values - sum(used) / len(used)) if used else 0.0
        work = float(numel) if by_elements else compressor.work([shape])
        entries = compressor.work([shape])
        if layout.indices:
            asked_for = max(1.0, kind.density * numel)
            entries = layout.indices if self.costs.style == "batched" else min(layout.indices, asked_for)
        codec, copies = self.costs.codec(kind.compressor), self._copies(kind)
        found |= {"first": 4 * layout.first, "rest": layout.nbytes - 4 * layout.first - unused, "work": work}
        found |= {"entries": copies * entries, "called": codec.encode(work)}
        found["decoded"] = codec.decode(numel if by_elements else copies * entries)
        factored = isinstance(compressor, LowRank) and compressor.split([shape]).matrices
        found["pieces"] = float(bool(factored)) if isinstance(compressor, LowRank) else 1.0
        return found

    def _jointly(self, kind: Kind, compressor: Compressor, sums: dict[str, Array]) -> None:
        """Replace the sums of payloads by those of one selection over all tensors of a bucket."""
        sizes, inverse = np.unique(sums["numel"], return_inverse=True)
        spec = str(kind.compressor)
        layouts = [payload_layout(spec, int(size), kind.density) for size in sizes]
        sums["first"] = np.array([4.0 * one.first for one in layouts])[inverse]
        sums["rest"] = np.array([one.nbytes - 4.0 * one.first for one in layouts])[inverse]
        if compressor.sparse:
            batched = self.costs.style == "batched"
            entries = [
                one.indices if batched else min(one.indices, max(1.0, kind.density * size))
                for one, size in zip(layouts, sizes, strict=True)
            ]
            sums["entries"] = self._copies(kind) * np.array(entries, dtype=float)[inverse]

    # ---- seconds ----------------------------------------------------------------------------------------------------

    def _encode(self, kind: Kind, sums: dict[str, Array]) -> Array:
        codec, tensors = self.costs.codec(str(kind.compressor)), sums["tensors"]
        if kind.calls == "each" and self.costs.style == "per_call":
            return sums["called"]
        low_rank = isinstance(build(str(kind.compressor)), LowRank)
        segments = sums["pieces"] if kind.calls == "each" else np.ones(len(tensors))
        pieces = np.maximum(1.0, sums["pieces"]) if low_rank else segments
        found: Array = codec.encode.many(sums["work"]) + codec.segment_s * (segments - 1)
        found += codec.piece_s * (pieces - segments) + codec.tensor_s * np.maximum(0.0, tensors - pieces)
        return found

    def _decode(self, kind: Kind, compressor: Compressor, sums: dict[str, Array]) -> Array:
        codec, batched = self.costs.codec(str(kind.compressor)), self.costs.style == "batched"
        if not self.costs.times:
            once = self._copies(kind) == 1
            share = 1 / self.costs.world_size if once and self._reduces(kind) else 1.0
            each = kind.calls == "each" and not batched
            return share * (sums["decoded"] if each else codec.decode.many(sums["work"]))
        if kind.calls == "each" and not batched:
            return sums["decoded"]
        return codec.decode.many(sums["entries"])

    def _message(self, kind: Kind, mask: Mask, sums: dict[str, Array]) -> Array:
        if kind.collective in self.costs.exchange:
            many = self.costs.exchange_many_s
            return many(kind.collective, sums["first"]) + many(kind.collective, sums["rest"])
        return self._sampled(kind, mask, sums["numel"] if kind.compressor else sums["rest"])

    def _sampled(self, kind: Kind, mask: Mask, sizes: Array) -> Array:
        """Return the seconds of messages by their size: exact for some buckets, linear between them."""
        found, first = np.unique(sizes, return_index=True)
        if len(found) > SAMPLES:
            marks = np.geomspace(max(1.0, found[found > 0][0]), found[-1], SAMPLES)
            at = np.unique(np.searchsorted(found, marks).clip(max=len(found) - 1))
            found, first = found[at], first[at]
        times = []
        for pair in first:
            here = range(self.cuts[self.starts[pair]], self.cuts[self.ends[pair]])
            tensors = [self.part.tensors[i] for i in here if mask[i]]
            filled = any(spec.numel for spec in tensors)
            times.append(sum(seconds(self.prices.charges(lane)) for lane in kind.lanes(tensors)) if filled else 0.0)
        return np.interp(sizes, found, times)

    def _copies(self, kind: Kind) -> int:
        """Return how many payloads are decoded."""
        collective = collectives.build(kind.collective)
        once = collective.additive_only or (isinstance(collective, Reducer) and collective.decodes_once)
        return 1 if once else self.costs.world_size

    def _reduces(self, kind: Kind) -> bool:
        return isinstance(collectives.build(kind.collective), Reducer)


def seconds(charges: Iterable[Charge]) -> float:
    """Return the seconds of all parts of an exchange."""
    return sum(charge.work_s for charge in charges)
