"""From a profile to SSFusion's buckets: buffers, then selection, density, offload and separation for each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

from ssfx.core.lazy import numpy as np
from ssfx.planning.costs import Costs
from ssfx.planning.plan import Bucket, Lane, Placement, Segment
from ssfx.planning.profile import Profile
from ssfx.schemes.carrier import Carrier
from ssfx.schemes.search.contiguous_groups import addressable
from ssfx.schemes.search.exact_groups import joint_groups
from ssfx.schemes.search.ssfusion_options import SsfusionOptions
from ssfx.schemes.search.ssfusion_prices import Buffer, BufferPrices, flow_of
from ssfx.schemes.search.ssfusion_selection import (
    best_split,
    choose_host,
    compensated_density,
    select_eq2,
    select_threshold,
    split_times,
    within_guard,
)
from ssfx.simulator.pricing.flow import Backward
from ssfx.simulator.pricing.message_sizes import payload_bytes_many

EQUAL_COUNT_GROUPS = 20
ROUNDING = 1e-13
"""Relative difference below which two ends are equal: the same sums, added in another order."""


@dataclass(frozen=True)
class Knobs:
    """What the rule leaves open, for one plan.

    buffers: how many there are, each of about as many elements; 0: those of the options. keep: which tensors stay
    dense, "rule": those of the rule; "budget": as many as the guard allows; "none"; "all", which are all-reduced.
    """

    buffers: int = 0
    keep: Literal["rule", "budget", "none", "all"] = "rule"


class Known:
    """What the plans of one dtype's tensors share, for every plan that is tried: filled as plans are made."""

    def __init__(self, part: Profile, costs: Costs, carrier: Carrier, late_dense_index: bool) -> None:
        self.part, self.costs, self.carrier = part, costs, carrier
        self.backward = Backward(part, costs)
        self.prices = BufferPrices(part, costs, carrier, late_dense_index)
        self.every = np.arange(len(part.tensors))
        self.gap_s = np.array(part.ready_gap_s)
        self.late_bytes = self.prices.nbytes  # of dense tensors that are gathered
        if late_dense_index:
            self.late_bytes = payload_bytes_many(str(carrier.compressor), self.prices.numel, 1.0)
        self.chosen: dict[object, Buffer] = {}
        self.splits: dict[Buffer, int] = {}

    @cached_property
    def ranges(self) -> list[range]:
        """The buffers that are best for joint compression."""
        return joint_groups(self.part, self.costs, self.carrier)

    @cached_property
    def host_s(self) -> list[float]:
        """Seconds of compressing each tensor on the host."""
        found: list[float] = self.costs.host.many(self.prices.numel).tolist()
        return found

    def total_s(self, buffers: Sequence[Buffer]) -> float:
        """Return the predicted end of a step with these buffers alone."""
        prices = [self.prices.of(buffer) for buffer in buffers]
        return self.backward.total_s(flow_of([(self.every, prices)], len(self.every), self.costs))


class BufferPlanner:
    """Plans one dtype's tensors, in the order of the paper: buffers, selection, density, offload, separation."""

    def __init__(
        self, part: Profile, costs: Costs, carrier: Carrier, options: SsfusionOptions, knobs: Knobs,
        known: Known | None = None,
    ) -> None:  # fmt: skip
        self.part, self.costs, self.carrier, self.options, self.knobs = part, costs, carrier, options, knobs
        self.known = known or Known(part, costs, carrier, options.late_dense_index)
        self.numel, self.gap_s = part.numel, part.ready_gap_s

    def buckets(self) -> list[Bucket]:
        """Return the buckets in backward order."""
        return [self.bucket(buffer) for buffer in self.buffers()]

    def buffers(self) -> list[Buffer]:
        """Return what is decided for each buffer, in backward order."""
        ranges = [part for at in self._ranges() for part in addressable(self.part, at)]
        chosen = [self._buffer(at, ranges[i - 1] if i else None) for i, at in enumerate(ranges)]
        if self.options.interleave and self.knobs.keep != "all":
            chosen = self._separate(chosen)
        if self.options.dense_escape:
            escaped = [replace(b, dense=frozenset(range(len(b.at))), host=frozenset(), split=len(b.at)) for b in chosen]
            chosen = self._adopt(chosen, escaped, lambda new_s, old_s: new_s < old_s * (1 - ROUNDING))
        return chosen

    def _ranges(self) -> list[range]:
        if self.knobs.buffers:
            return _even_groups(self.numel, self.knobs.buffers)
        if self.options.buffers == "cupcake":
            return self.known.ranges
        num = len(self.numel)
        size = max(1, num // (self.options.groups or EQUAL_COUNT_GROUPS))
        return [range(start, min(start + size, num)) for start in range(0, num, size)]

    def _buffer(self, at: range, previous: range | None) -> Buffer:
        rule = self.knobs.keep == "rule"
        key = (at, previous if rule else None, self.knobs.keep, self.options.rule, self.options.offload)
        if key not in self.known.chosen:
            self.known.chosen[key] = self._decided(at, previous if rule else None)
        return self.known.chosen[key]

    def _decided(self, at: range, previous: range | None) -> Buffer:
        options, density = self.options, self.options.density
        numel = self.numel[at.start : at.stop]
        gap_s, encode_s = self.gap_s[at.start : at.stop], self.costs.shares_s(numel)
        total = sum(numel)

        def allows(dense_numel: Any) -> Any:
            return within_guard(options.guard, dense_numel, total, density, options.rho_min)

        def compensated(dense: frozenset[int]) -> float:
            if not options.compensate:
                return density
            return compensated_density(total, sum(numel[i] for i in dense), density, options.rho_min)

        if self.knobs.keep == "all":
            return Buffer(at, frozenset(range(len(at))), density, split=len(at))
        if self.knobs.keep == "none":
            dense = self._empty(at)
        elif options.rule == "code":
            dense = select_threshold(
                numel, gap_s, encode_s, lambda d: self._gather_s(Buffer(at, d, compensated(d))), allows
            )
        else:
            skips = options.first_buffer == "skip" and self.knobs.keep == "rule"
            previous_s = float("inf") if skips else 0.0
            if previous is not None:  # it counts as fully compressed: it is decided later than this one
                previous_s = self._gather_s(Buffer(previous, self._empty(previous), density))
            dense = select_eq2(numel, gap_s, encode_s, previous_s, allows)
        host: frozenset[int] = frozenset()
        if options.offload:
            host = choose_host(gap_s, encode_s, self.known.host_s[at.start : at.stop], dense)
        return Buffer(at, dense, compensated(dense), host)

    def _empty(self, at: range) -> frozenset[int]:
        return frozenset(i for i, j in enumerate(at) if not self.numel[j])

    def _separate(self, buffers: list[Buffer]) -> list[Buffer]:
        split = [replace(b, split=self._split(b)) for b in buffers]
        if self.options.separate == "local":
            return split
        return self._adopt(buffers, split, lambda new_s, old_s: new_s <= old_s * (1 + ROUNDING))

    def _split(self, buffer: Buffer) -> int:
        if len(buffer.dense) == len(buffer.at):
            return len(buffer.at)
        if buffer not in self.known.splits:
            self.known.splits[buffer] = best_split(self.split_times(buffer))
        return self.known.splits[buffer]

    def split_times(self, buffer: Buffer) -> list[float]:
        """Return T1 + T2 of the paper for every split of the buffer."""
        here, dense = slice(buffer.at.start, buffer.at.stop), np.zeros(len(buffer.at), dtype=bool)
        dense[list(buffer.dense)] = True
        device = np.where(dense, 0.0, self.known.prices.numel[here])
        device[list(buffer.host)] = 0.0
        encode_s = np.array(self.costs.shares_s(device.tolist()))
        if self.costs.style == "batched" and device.any():  # the one call waits for the last of its tensors
            last, whole_s = np.flatnonzero(device)[-1], sum(encode_s.tolist())
            encode_s[:] = 0.0
            encode_s[last] = whole_s
        reduced, late = (
            np.concatenate([[0.0], np.cumsum(np.where(dense, nbytes[here], 0.0))])
            for nbytes in (self.known.prices.nbytes, self.known.late_bytes)
        )
        gathered = self._packed_bytes(buffer) + late[-1] - late
        reduce_s = self.costs.exchange_many_s("all_reduce", reduced)
        gather_s = self.costs.exchange_many_s(self.carrier.collective, gathered)
        return split_times((self.known.gap_s[here] + encode_s).tolist(), reduce_s.tolist(), gather_s.tolist())

    def _adopt(
        self, buffers: list[Buffer], changed: list[Buffer], better: Callable[[float, float], bool]
    ) -> list[Buffer]:
        """Return the buffers with those changes, tried one by one, after which the predicted end is `better`."""
        chosen = list(buffers)
        old_s = self.known.total_s(chosen)
        for i, buffer in enumerate(changed):
            trial = [*chosen[:i], buffer, *chosen[i + 1 :]]
            new_s = self.known.total_s(trial)
            if better(new_s, old_s):
                chosen, old_s = trial, new_s
        return chosen

    def _gather_s(self, buffer: Buffer) -> float:
        """Return the seconds of gathering the whole buffer."""
        late = sum(self.known.late_bytes[[buffer.at[i] for i in buffer.dense]].tolist())
        return self.costs.exchange_s(self.carrier.collective, self._packed_bytes(buffer) + late)

    def _packed_bytes(self, buffer: Buffer) -> float:
        packed = np.ones(len(buffer.at), dtype=bool)
        packed[list(buffer.dense)] = False
        sizes = self.known.prices.numel[buffer.at.start : buffer.at.stop][packed]
        return float(payload_bytes_many(str(self.carrier.compressor), sizes, buffer.density).sum())

    def bucket(self, buffer: Buffer) -> Bucket:
        """Return the all-reduce of the early dense tensors, then the gather of everything else; no lane is empty."""
        reduced: list[Segment] = []
        gathered: list[Segment] = []
        for i, j in enumerate(buffer.at):
            group = (self.part.tensors[j],)
            if i not in buffer.dense:
                placement: Placement = "host" if i in buffer.host else "device"
                gathered.append(replace(self.carrier.segment(group, buffer.density), placement=placement))
            elif i < buffer.split:
                reduced.append(Segment((group[0].name,)))
            elif self.options.late_dense_index:
                gathered.append(self.carrier.segment(group, 1.0))
            else:
                gathered.append(Segment((group[0].name,)))
        lanes = (Lane("all_reduce", tuple(reduced)), Lane(self.carrier.collective, tuple(gathered)))
        return Bucket(tuple(lane for lane in lanes if lane.segments))


def _even_groups(numel: Sequence[int], count: int) -> list[range]:
    """Return at most `count` groups of neighbours, cut where the elements so far pass another share of all."""
    filled = np.concatenate([[0], np.cumsum(np.array(numel, dtype=np.int64))])
    share = filled * count // max(int(filled[-1]), 1)
    stops = np.flatnonzero(share[1:-1] > share[:-2]) + 1
    return [range(a, b) for a, b in pairwise((0, *stops.tolist(), len(numel)))]
