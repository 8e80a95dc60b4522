"""From a profile to SSFusion's buckets: buffers, then selection, density, offload and separation for each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from ssfx.core.lazy import numpy as np
from ssfx.planning.costs import Costs
from ssfx.planning.plan import Bucket, Lane, Placement, Segment
from ssfx.planning.profile import Profile
from ssfx.schemes.search.byte_groups import plan_per_dtype
from ssfx.schemes.search.contiguous_groups import addressable
from ssfx.schemes.search.exact_groups import joint_groups
from ssfx.schemes.search.ssfusion_selection import best_split, choose_host, compensated_density, select_eq2, split_times
from ssfx.schemes.transport import Transport
from ssfx.simulator.pricing.message_sizes import payload_bytes_many
from ssfx.simulator.pricing.timeline import StepPrices

ROUNDING = 1e-13
"""Relative difference below which two ends are equal: the same sums, added in another order."""


@dataclass(frozen=True)
class Buffer:
    """What was decided for the tensors at `at`: positions count from 0 inside the buffer.

    `dense` tensors before `split` are all-reduced, everything else is gathered; `host` tensors are compressed there.
    """

    at: range
    dense: frozenset[int]
    density: float
    host: frozenset[int] = frozenset()
    split: int = 0


@dataclass(frozen=True)
class BufferRules:
    """A variant, and what the rule leaves open, for one plan.

    offload, interleave: the two extensions. escape: buffers that are better off dense are dense. buffers: how many
    there are, each of about as many elements; 0: those that are best for joint compression. keep: which tensors stay
    dense, "rule": those of Eq. 2; "printed": these without the budget; "budget": as many as the budget allows; "none";
    "all", which are all-reduced.
    """

    offload: bool = False
    interleave: bool = False
    escape: bool = False
    buffers: int = 0
    keep: Literal["rule", "printed", "budget", "none", "all"] = "rule"


class BufferPlanner:
    """Plans one dtype's tensors, in the order of the paper; what plans with different rules share is made once."""

    def __init__(self, part: Profile, costs: Costs, transport: Transport, compensate: bool = True) -> None:
        self.part, self.costs, self.transport, self.compensate = part, costs, transport, compensate
        self.numel, self.gap_s = np.array(part.numel, dtype=float), np.array(part.ready_gap_s)
        self.nbytes = np.array([spec.nbytes for spec in part.tensors], dtype=float)
        self.host_s = costs.host.many(self.numel).tolist()
        self._prices = StepPrices(part, costs)
        self._known: dict[object, Buffer] = {}
        self._splits: dict[Buffer, int] = {}
        self._buckets: dict[Buffer, Bucket] = {}

    def buckets(self, rules: BufferRules, ranges: Sequence[range] = ()) -> list[Bucket]:
        """Return the buckets in backward order, in the buffers given or those of the rules."""
        ranges = ranges or [one for at in self._ranges(rules.buffers) for one in addressable(self.part, at)]
        chosen = [self._buffer(rules, at, before) for at, before in zip(ranges, (None, *ranges), strict=False)]
        if rules.interleave and rules.keep != "all":
            chosen = [replace(one, split=self._split(one)) for one in chosen]
        if rules.escape:
            dense = [replace(b, dense=frozenset(range(len(b.at))), host=frozenset(), split=len(b.at)) for b in chosen]
            old_s = self._total_s(chosen)  # changes are tried one by one, and kept where the step should end earlier
            for i, buffer in enumerate(dense):
                trial = [*chosen[:i], buffer, *chosen[i + 1 :]]
                if (new_s := self._total_s(trial)) < old_s * (1 - ROUNDING):
                    chosen, old_s = trial, new_s
        return [self._bucket(one) for one in chosen]

    def _ranges(self, count: int) -> list[range]:
        """Return the best buffers for joint compression, or `count` of about as many elements."""
        if not count:
            return joint_groups(self.part, self.costs, self.transport)
        filled = np.concatenate([[0], np.cumsum(np.array(self.part.numel, dtype=np.int64))])
        share = filled * count // max(int(filled[-1]), 1)
        stops = np.flatnonzero(share[1:-1] > share[:-2]) + 1
        return [range(a, b) for a, b in pairwise((0, *stops.tolist(), len(self.numel)))]

    def _buffer(self, rules: BufferRules, at: range, before: range | None) -> Buffer:
        key = (at, before if rules.keep in ("rule", "printed") else None, rules.keep, rules.offload)
        if key not in self._known:
            self._known[key] = self._decided(*key)
        return self._known[key]

    def _decided(self, at: range, before: range | None, keep: str, offload: bool) -> Buffer:
        density, numel, gap_s = self.transport.density, self.part.numel[at.start : at.stop], self.part.ready_gap_s
        gap_s, encode_s = gap_s[at.start : at.stop], self.costs.shares_s(numel)
        dense = self._empty(at)
        if keep == "all":
            return Buffer(at, frozenset(range(len(at))), density, split=len(at))
        if keep != "none":
            # The buffer before counts as fully compressed: it is decided later than this one.
            gather_s = 0.0 if before is None else self._gather_s(Buffer(before, self._empty(before), density))
            dense = select_eq2(numel, gap_s, encode_s, gather_s, np.inf if keep == "printed" else density * sum(numel))
        host = choose_host(gap_s, encode_s, self.host_s[at.start : at.stop], dense) if offload else frozenset()
        kept = sum(numel[i] for i in dense)
        return Buffer(at, dense, compensated_density(sum(numel), kept, density) if self.compensate else density, host)

    def _empty(self, at: range) -> frozenset[int]:
        return frozenset(i for i, j in enumerate(at) if not self.numel[j])

    def _split(self, buffer: Buffer) -> int:
        if len(buffer.dense) == len(buffer.at):
            return len(buffer.at)
        if buffer not in self._splits:
            self._splits[buffer] = best_split(self.split_times(buffer))
        return self._splits[buffer]

    def split_times(self, buffer: Buffer) -> list[float]:
        """Return T1 + T2 of the paper for every split of the buffer."""
        here, dense = slice(buffer.at.start, buffer.at.stop), np.zeros(len(buffer.at), dtype=bool)
        dense[list(buffer.dense)] = True
        device = np.where(dense, 0.0, self.numel[here])
        device[list(buffer.host)] = 0.0
        encode_s = np.array(self.costs.shares_s(device.tolist()))
        if self.costs.style == "batched" and device.any():  # the one call waits for the last of its tensors
            last, whole_s = np.flatnonzero(device)[-1], sum(encode_s.tolist())
            encode_s[:] = 0.0
            encode_s[last] = whole_s
        reduced = np.concatenate([[0.0], np.cumsum(np.where(dense, self.nbytes[here], 0.0))])
        reduce_s = self.costs.exchange_many_s("all_reduce", reduced)
        late = self._packed_bytes(buffer) + reduced[-1] - reduced
        gather_s = self.costs.exchange_many_s(self.transport.collective, late)
        return split_times((self.gap_s[here] + encode_s).tolist(), reduce_s.tolist(), gather_s.tolist())

    def _total_s(self, buffers: list[Buffer]) -> float:
        made = [self._bucket(one) for one in buffers]
        return self._prices.total_s(plan_per_dtype("ssfusion", self.part, self.costs.world_size, lambda _: made))

    def _gather_s(self, buffer: Buffer) -> float:
        """Return the seconds of gathering the whole buffer."""
        late = sum(self.nbytes[[buffer.at[i] for i in buffer.dense]].tolist())
        return self.costs.exchange_s(self.transport.collective, self._packed_bytes(buffer) + late)

    def _packed_bytes(self, buffer: Buffer) -> float:
        sizes = [self.numel[j] for i, j in enumerate(buffer.at) if i not in buffer.dense]
        return float(payload_bytes_many(str(self.transport.compressor), np.array(sizes), buffer.density).sum())

    def _bucket(self, buffer: Buffer) -> Bucket:
        """Return the all-reduce of the early dense tensors, then the gather of everything else; no lane is empty."""
        if buffer not in self._buckets:
            reduced: list[Segment] = []
            gathered: list[Segment] = []
            for i, j in enumerate(buffer.at):
                group = (self.part.tensors[j],)
                if i not in buffer.dense:
                    placement: Placement = "host" if i in buffer.host else "device"
                    gathered.append(replace(self.transport.segment(group, buffer.density), placement=placement))
                else:
                    (reduced if i < buffer.split else gathered).append(Segment((group[0].name,)))
            lanes = (Lane("all_reduce", tuple(reduced)), Lane(self.transport.collective, tuple(gathered)))
            self._buckets[buffer] = Bucket(tuple(lane for lane in lanes if lane.segments))
        return self._buckets[buffer]
