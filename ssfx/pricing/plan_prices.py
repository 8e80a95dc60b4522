"""What the parts of a plan take: compressor calls, exchanges phase by phase, decoding. The one list of prices."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from ssfx.collectives import Load, Phase, Reducer, collectives
from ssfx.compressors import build
from ssfx.core.errors import ConfigError
from ssfx.perf_model.timing_model import TimingModel
from ssfx.planning.costs import Costs, Curve
from ssfx.planning.plan import Lane, Plan, Segment
from ssfx.pricing.message_sizes import lane_rounds, plan_bytes, segment_layout

Times = Costs | TimingModel
"""What is known about time: by a planner, or by a simulation, which also knows what tasks at the same time cost."""


@dataclass(frozen=True)
class SelectionStats:
    """What compressors do to real gradients, where the plan only knows what they are asked for.

    achieved_density: elements sent over elements asked for, by compressor name (1 where absent). Where a threshold lets
    more pass, messages are longer in proportion unless the plan fixes their size; so is decoding, unless it adds up
    whatever a message has room for, as the runtime does. build_up: elements that all ranks select together over those
    of one, in [1, P]; None: no two select the same.
    """

    achieved_density: tuple[tuple[str, float], ...] = ()
    build_up: float | None = None

    def ratio(self, spec: str | None) -> float:
        """Return sent over asked for, of a compressor spec."""
        return dict(self.achieved_density).get((spec or "").partition("(")[0], 1.0)

    def loads(self, plan: Plan, lane: Lane) -> Iterator[Load]:
        """Yield the planned loads; where messages follow what was selected, longer by what passes too much."""
        collective = collectives.build(lane.collective)
        ratio = 1.0
        if collective.variable or isinstance(collective, Reducer):
            ratio = max(self.ratio(segment.compressor) for segment in lane.segments)
        for load in lane_rounds(plan, lane):
            kept = min(load.numel, round(load.kept * ratio))
            longer = replace(load, nbytes=round(load.nbytes * ratio), kept=kept, build_up=self.build_up)
            yield load if ratio == 1 and self.build_up is None else longer

    def sent_bytes(self, plan: Plan) -> int:
        """Return the bytes that one rank sends in one step."""
        return sum(
            collectives.build(lane.collective).traffic(load).sent_bytes
            for _, lane in plan.lanes()
            for load in self.loads(plan, lane)
        )

    def contributed_bytes(self, plan: Plan) -> int:
        """Return the bytes that one rank hands over to the exchanges of one step."""
        more = ((lane_rounds(plan, lane), self.loads(plan, lane)) for _, lane in plan.lanes())
        return plan_bytes(plan) + sum(
            real.nbytes - load.nbytes for planned, loads in more for load, real in zip(planned, loads, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Charge:
    """What a part of an exchange takes: fields as those of Task."""

    work_s: float
    demand: float
    under_compute: tuple[float, ...] | None = None
    wire_s: float = 0.0

    def joins(self, other: Charge) -> bool:
        """Return whether both can be one task."""
        return (self.under_compute is None) == (other.under_compute is None) and self.demand == other.demand

    def __add__(self, other: Charge) -> Charge:
        both = None
        if self.under_compute and other.under_compute:
            both = tuple(a + b for a, b in zip(self.under_compute, other.under_compute, strict=True))
        return Charge(self.work_s + other.work_s, self.demand, both, self.wire_s + other.wire_s)


class Prices:
    """Seconds of a plan's parts. `outside` collects what was charged beyond the range its curve is known for."""

    def __init__(self, plan: Plan, system: Times, selection: SelectionStats) -> None:
        self.outside: dict[str, str] = {}
        self._plan = plan
        self._system = system
        self._selection = selection
        self._where = "in the costs" if isinstance(system, Costs) else f"on {system.name}"
        self._by_elements = isinstance(system, Costs) and not system.times

    def host_s(self, segment: Segment) -> float:
        """Return the seconds of compressing a segment on the host."""
        assert segment.compressor is not None
        work = build(segment.compressor).work(self._shapes(segment))
        if self._by_elements:
            work = float(self._plan.numel(segment))
        return self._at(f"{segment.compressor} on the host", self._system.codec(segment.compressor).host, work)

    def encode_s(self, segments: Sequence[Segment]) -> float:
        """Return the seconds of one call for several segments of one compressor."""
        by_spec: dict[str, list[Segment]] = {}
        for segment in segments:
            assert segment.compressor is not None
            by_spec.setdefault(segment.compressor, []).append(segment)
        total_s = 0.0
        for spec, members in by_spec.items():
            codec, compressor = self._system.codec(spec), build(spec)
            shapes = [self._shapes(segment) for segment in members]
            by_elements = [float(self._plan.numel(segment)) for segment in members]
            work = sum(by_elements if self._by_elements else [compressor.work(one) for one in shapes])
            pieces, tensors = sum(compressor.pieces(one) for one in shapes), sum(len(one) for one in shapes)
            total_s += self._at(spec, codec.encode, work) + codec.segment_s * (len(members) - 1)
            total_s += codec.piece_s * (pieces - len(members)) + codec.tensor_s * max(0, tensors - pieces)
        return total_s

    def charges(self, lane: Lane) -> Iterator[Charge]:
        """Yield the parts of an exchange, those that are alike together."""
        collective = collectives.build(lane.collective)
        pending: Charge | None = None
        for load in self._selection.loads(self._plan, lane):
            if not load.nbytes:
                continue
            if lane.collective in self._system.exchange:
                found = [self._on_network(lane.collective, load.nbytes)]
            else:
                found = [self._phase(lane, load, phase) for phase in collective.phases(load)]
            for charge in found:
                if pending and not pending.joins(charge):
                    yield pending
                    pending = None
                pending = pending + charge if pending else charge
        if pending:
            yield pending

    def _phase(self, lane: Lane, load: Load, phase: Phase) -> Charge:
        if phase.primitive in ("encode", "decode"):
            spec = next(segment.compressor for segment in lane.segments if segment.compressor)
            codec, compressor = self._system.codec(spec), build(spec)
            if self._by_elements:
                return Charge((codec.encode if phase.primitive == "encode" else codec.decode)(phase.size), 1.0)
            units = phase.size * compressor.work([(load.numel,)]) / load.numel
            if phase.primitive == "encode":
                return Charge(self._at(f"{spec} on the way", codec.encode, units), 1.0)
            entries = load.world_size * (phase.size * load.kept / load.numel if compressor.sparse else units)
            return Charge(self._at(f"{spec} on the way, decoded", codec.decode, entries), 1.0)
        primitive = primitive_of(phase, self._system.exchange)
        if primitive not in self._system.exchange:
            raise ConfigError(
                f"no times for {primitive} {self._where}; there are some for "
                f"{', '.join(sorted(self._system.exchange))}: measure it with ssfx profile network"
            )
        return self._on_network(primitive, phase.size)

    def _on_network(self, primitive: str, nbytes: float) -> Charge:
        curve = self._system.exchange[primitive]
        work_s = self._at(primitive, curve, nbytes)
        if isinstance(self._system, Costs):
            return Charge(work_s, self._system.occupancy.get(primitive, 0.0))
        contention = self._system.contention
        under_compute: tuple[float, float] | None = None
        if primitive in contention.under_compute_s:
            seconds = self._at(f"{primitive} under compute", contention.under_compute_s[primitive], nbytes)
            under_compute = (seconds, contention.under_compute_cpu_s[primitive](nbytes))
        shared = contention.in_flight > 1 or self._system.burst_s
        wire_s = work_s - min(work_s, curve.seconds[0]) if shared else 0.0
        return Charge(work_s, contention.occupancy.get(primitive, 0.0), under_compute, wire_s)

    def decode_s(self, lane: Lane) -> float:
        """Return the seconds of decoding what a lane has received."""
        collective = collectives.build(lane.collective)
        once = collective.additive_only or (isinstance(collective, Reducer) and collective.decodes_once)
        copies = 1 if once else self._plan.world_size
        if self._by_elements:
            share = 1 / self._plan.world_size if once and isinstance(collective, Reducer) else 1.0
            calls = [self._plan.numel(segment) for segment in lane.segments if segment.compressor]
            if self._system.style == "batched":
                calls = [sum(calls)]
            return share * sum(map(self._system.codec("").decode, calls))
        entries: dict[tuple[str, int], float] = {}
        for i, segment in enumerate(lane.segments):
            if segment.compressor is None or not self._plan.numel(segment):
                continue
            call = (segment.compressor, 0 if self._system.style == "batched" else i)
            entries[call] = entries.get(call, 0.0) + copies * self._entries(segment)
        return sum(
            self._at(f"{spec} decoded", self._system.codec(spec).decode, count) for (spec, _), count in entries.items()
        )

    def sums_pairs(self, lane: Lane) -> bool:
        """Return whether the runtime adds what a lane gathered straight into the gradients: pairs of every rank."""
        collective = collectives.build(lane.collective)
        found = [build(segment.compressor) for segment in lane.segments if segment.compressor]
        gathered = not collective.additive_only and not isinstance(collective, Reducer)
        return bool(found) and gathered and all(one.sparse and not one.vote for one in found)

    def _entries(self, segment: Segment) -> float:
        assert segment.compressor is not None
        layout, compressor = segment_layout(self._plan, segment), build(segment.compressor)
        if not layout.indices:
            return compressor.work(self._shapes(segment))
        if self._system.style == "batched":
            return float(layout.indices)  # it adds up what a message has room for, padding too
        asked_for = max(1.0, segment.density * self._plan.numel(segment))  # a message may have room for more
        return min(float(layout.indices), asked_for * self._selection.ratio(segment.compressor))

    def _at(self, what: str, curve: Curve, size: float) -> float:
        if not curve.covers(size):
            known = f"{curve.sizes[0]:,.0f} .. {curve.sizes[-1]:,.0f}"
            self.outside.setdefault(what, f"{what}: {size:,.0f} where {known} is known")
        return curve(size)

    def _shapes(self, segment: Segment) -> list[tuple[int, ...]]:
        return [self._plan.by_name[name].shape for name in segment.tensors]


def primitive_of(phase: Phase, known: Collection[str]) -> str:
    """Return which of the `known` primitives a phase is charged as: inside nodes if there are other links there."""
    inside = f"{phase.primitive}_inside"
    return inside if phase.inside and inside in known else phase.primitive
