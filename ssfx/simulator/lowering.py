"""From a plan to tasks: what one rank does in a step, stage by stage, as the runtime does it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ssfx.collectives import Load, Phase, Reducer, collectives
from ssfx.compressors import build
from ssfx.costs import Curve
from ssfx.errors import ConfigError
from ssfx.plan import Lane, Plan, Segment
from ssfx.profile import Profile
from ssfx.simulator.task import Task
from ssfx.system import System
from ssfx.timeline import primitive_of
from ssfx.wire import lane_rounds, segment_bytes, segment_layout


@dataclass(frozen=True)
class Behaviour:
    """What compressors do to real gradients, where the plan only knows what they are asked for.

    achieved_density: elements sent over elements asked for, by compressor name (1 where absent). A threshold that lets
    more pass makes decoding slower in proportion, and messages longer unless their size is fixed by the plan.
    """

    achieved_density: tuple[tuple[str, float], ...] = ()

    def ratio(self, spec: str | None) -> float:
        """Return sent over asked for, of a compressor spec."""
        return dict(self.achieved_density).get((spec or "").partition("(")[0], 1.0)


@dataclass(frozen=True, slots=True)
class Charge:
    """What a part of an exchange takes: fields as those of Task."""

    work_s: float
    demand: float
    beside: tuple[float, float] | None = None
    wire_s: float = 0.0

    def joins(self, other: Charge) -> bool:
        """Return whether both can be one task."""
        return self.demand == other.demand and (self.beside is None) == (other.beside is None)

    def __add__(self, other: Charge) -> Charge:
        beside = None
        if self.beside and other.beside:
            beside = (self.beside[0] + other.beside[0], self.beside[1] + other.beside[1])
        return Charge(self.work_s + other.work_s, self.demand, beside, self.wire_s + other.wire_s)


class Lowering:
    """Makes the tasks of one step. `outside` collects what was charged beyond the range its curve is known for."""

    def __init__(self, plan: Plan, profile: Profile, system: System, behaviour: Behaviour) -> None:
        self.plan = plan
        self.profile = profile
        self.system = system
        self.behaviour = behaviour
        self.tasks: list[Task] = []
        self.outside: dict[str, str] = {}
        self._alone = plan.world_size == 1
        self._decodes_on_the_way = system.style == "reference" and plan.decode == "comm_stream"

    def step(self, accumulate: int = 1) -> list[Task]:
        """Return the tasks of one optimizer step of `accumulate` micro-batches; the last one exchanges."""
        profile, system = self.profile, self.system
        for _ in range(accumulate - 1):
            self._device("forward", "forward", profile.forward_s)
            self._device("backward", "backward", profile.backward_s)
        self._device("forward", "forward", profile.forward_s)
        if self._alone:
            self._device("backward", "backward", profile.backward_s)
        else:
            ready, end = self._backward()
            arrived = [self._exchange(index, lane, ready, end) for index, (_, lane) in enumerate(self.plan.lanes())]
            self._finish([position for position in arrived if position is not None])
        self._device("step", "step", profile.step_s)
        self._device("other", "other", profile.other_s)
        if not self._alone:
            self._device("other", "bookkeeping", system.overheads.finish_s)
        return self.tasks

    # ---- the training thread ----------------------------------------------------------------------------------------

    def _backward(self) -> tuple[dict[tuple[str, ...], int], int]:
        """Add backward and compression; return by segment the task after which it is ready, and backward's last."""
        overheads = self.system.overheads
        calls = self._calls()
        ready: dict[tuple[str, ...], int] = {}
        work_s, first, position, numel = 0.0, "", -1, 0
        for spec, gap_s in zip(self.profile.tensors, self.profile.ready_gap_s, strict=True):
            first = first or spec.name
            numel += spec.numel
            work_s += gap_s + overheads.hook_s
            dense, call = calls.get(spec.name, (None, None))
            work_s += overheads.lane_s * self._issued.get(spec.name, 0)
            if spec.name in self._dense:
                work_s += overheads.fill_s_per_byte * spec.nbytes
            if dense is None and call is None:
                continue
            name = first if first == spec.name else f"{first} .. {spec.name}"
            position = self._device("backward", name, work_s)
            work_s, first = 0.0, ""
            for segment in dense or ():
                ready[segment.tensors] = position
            if call:
                position = self._compress(call, position, ready)
        if work_s:
            position = self._device("backward", first, work_s)
        return ready, position

    def _calls(self) -> dict[str, tuple[list[Segment] | None, list[list[Segment]] | None]]:
        """Return by tensor what its gradient completes: dense segments, and compressor calls.

        Where a call takes a whole lane, it waits for the last of the lane's device segments.
        """
        found: dict[str, tuple[list[Segment] | None, list[list[Segment]] | None]] = {}
        self._dense: set[str] = set()
        self._issued: dict[str, int] = {}
        order = self.plan.order

        def add(segments: list[Segment], dense: bool) -> None:
            last = max((segment.tensors[-1] for segment in segments), key=lambda name: order[name])
            plain, calls = found.get(last, (None, None))
            if dense:
                found[last] = ([*(plain or []), *segments], calls)
            else:
                found[last] = (plain, [*(calls or []), segments])

        for bucket in self.plan.buckets:
            for lane in bucket.lanes:
                together = []
                last = max(lane.tensors, key=lambda name: order[name])
                self._issued[last] = self._issued.get(last, 0) + 1
                for segment in lane.segments:
                    if not self.plan.numel(segment):
                        continue
                    if segment.dense:
                        self._dense.update(segment.tensors)
                        add([segment], dense=True)
                    elif segment.placement == "device" and self.system.style == "runtime":
                        together.append(segment)
                    else:
                        add([segment], dense=False)
                if together:
                    add(together, dense=False)
        return found

    def _compress(self, calls: list[list[Segment]], position: int, ready: dict[tuple[str, ...], int]) -> int:
        for segments in calls:
            name = ", ".join(segment.tensors[-1] for segment in segments[-1:])
            if segments[0].placement == "host":
                end = self._offload(segments[0], name, position)
            else:
                arrivals_s = self.system.overheads.add_s * sum(len(segment.tensors) for segment in segments)
                end = position = self._device("compress", name, self._encode_s(segments) + arrivals_s)
            for segment in segments:
                ready[segment.tensors] = end
        return position

    def _offload(self, segment: Segment, name: str, after: int) -> int:
        """Add the way over the host: out, compressed there by its worker, back; return the last task."""
        assert segment.compressor is not None
        codec = self.system.codec(segment.compressor)
        pcie = 0.0 if codec.host_copies else self.system.pcie_s_per_byte
        numel = self.plan.numel(segment)
        end = after
        if pcie:
            end = self._add(Task("to_host", name, "copy_out", 4 * numel * pcie, 0.0, (end,)))
        compressor = build(segment.compressor)
        shapes = [self.plan.by_name[tensor].shape for tensor in segment.tensors]
        work_s = self._at(f"{segment.compressor} on the host", codec.host, compressor.work(shapes))
        whole = ",".join(segment.tensors)
        end = self._add(Task("compress", whole, "host", work_s, float(self.system.host_shares), (end,)))
        if pcie:
            back_s = segment_bytes(self.plan, segment) * pcie
            end = self._add(Task("from_host", name, "copy_in", back_s, 0.0, (end,)))
        return end

    def _encode_s(self, segments: list[Segment]) -> float:
        """Return the seconds of one call for several segments of one compressor."""
        by_spec: dict[str, list[Segment]] = {}
        for segment in segments:
            assert segment.compressor is not None
            by_spec.setdefault(segment.compressor, []).append(segment)
        total_s = 0.0
        for spec, members in by_spec.items():
            codec, compressor = self.system.codec(spec), build(spec)
            shapes = [[self.plan.by_name[name].shape for name in segment.tensors] for segment in members]
            work = sum(compressor.work(one) for one in shapes)
            pieces = sum(compressor.pieces(one) for one in shapes)
            total_s += self._at(spec, codec.encode, work) + codec.segment_s * (pieces - 1)
        return total_s

    # ---- the network ------------------------------------------------------------------------------------------------

    def _exchange(self, index: int, lane: Lane, ready: dict[tuple[str, ...], int], backward_end: int) -> int | None:
        """Add the exchange of one lane, its phases one after the other; return its last task."""
        after = {ready[segment.tensors] for segment in lane.segments if segment.tensors in ready}
        if not self.plan.overlap:
            after.add(backward_end)
        position = None
        nbytes = sum(load.nbytes for load in lane_rounds(self.plan, lane))
        name = f"{lane.collective} {nbytes} B"
        for charge in self._charges(lane):
            before = tuple(after) if position is None else (position,)
            position = self._add(
                Task(
                    "exchange", name, "network", charge.work_s, charge.demand, before, index, charge.beside,
                    charge.wire_s,
                )
            )  # fmt: skip
        if position is not None and self._decodes_on_the_way and (decode_s := self._decode_s(lane)):
            position = self._add(Task("decompress", name, "network", decode_s, 0.0, (position,), index))
        return position

    def _charges(self, lane: Lane) -> Iterator[Charge]:
        """Yield the parts of an exchange, those that are alike together."""
        collective = collectives.build(lane.collective)
        pending: Charge | None = None
        for load in self._loads(lane):
            if not load.nbytes:
                continue
            if lane.collective in self.system.exchange:
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
            codec, compressor = self.system.codec(spec), build(spec)
            units = phase.size * compressor.work([(load.numel,)]) / load.numel
            if phase.primitive == "encode":
                return Charge(self._at(f"{spec} on the way", codec.encode, units), 1.0)
            entries = load.world_size * (phase.size * load.kept / load.numel if compressor.sparse else units)
            return Charge(self._at(f"{spec} on the way, decoded", codec.decode, entries), 1.0)
        primitive = primitive_of(phase, self.system.exchange)
        if primitive not in self.system.exchange:
            raise ConfigError(
                f"no times for {primitive} on {self.system.name}; there are some for "
                f"{', '.join(sorted(self.system.exchange))}: measure it with ssfx profile network"
            )
        return self._on_network(primitive, phase.size)

    def _on_network(self, primitive: str, nbytes: float) -> Charge:
        system = self.system
        curve = system.exchange[primitive]
        work_s = self._at(primitive, curve, nbytes)
        beside = None
        if primitive in system.beside:
            beside = (max(work_s, system.beside[primitive](nbytes)), system.cpu[primitive](nbytes))
        wire_s = work_s - min(work_s, curve.seconds[0]) if system.burst_s else 0.0
        return Charge(work_s, system.occupancy.get(primitive, 0.0), beside, wire_s)

    def _loads(self, lane: Lane) -> Iterator[Load]:
        """Yield the planned loads; where messages follow what was selected, longer by what passes too much."""
        collective = collectives.build(lane.collective)
        ratio = 1.0
        if collective.variable or isinstance(collective, Reducer):
            ratio = max(self.behaviour.ratio(segment.compressor) for segment in lane.segments)
        for load in lane_rounds(self.plan, lane):
            kept = min(load.numel, round(load.kept * ratio))
            yield replace(load, nbytes=round(load.nbytes * ratio), kept=kept) if ratio != 1 else load

    # ---- after backward ---------------------------------------------------------------------------------------------

    def _finish(self, arrived: list[int]) -> None:
        """Add what follows when everything has arrived: decoding lane by lane, the check, writing the averages."""
        overheads = self.system.overheads
        total_bytes = sum(spec.nbytes for spec in self.plan.tensors)
        wait = tuple(arrived)
        for index, (_, lane) in enumerate(self.plan.lanes()):
            seconds = 0.0 if self._decodes_on_the_way else self._decode_s(lane)
            if seconds:
                self._device("decompress", lane.tensors[-1], seconds, wait, index)
        self._device("decompress", "average", overheads.result_s_per_byte * total_bytes, wait)

    def _decode_s(self, lane: Lane) -> float:
        collective = collectives.build(lane.collective)
        once = collective.additive_only or (isinstance(collective, Reducer) and collective.decodes_once)
        copies = 1 if once else self.plan.world_size
        entries: dict[tuple[str, int], float] = {}
        for i, segment in enumerate(lane.segments):
            if segment.compressor is None or not self.plan.numel(segment):
                continue
            call = (segment.compressor, 0 if self.system.style == "runtime" else i)
            entries[call] = entries.get(call, 0.0) + copies * self._entries(segment)
        return sum(
            self._at(f"{spec} decoded", self.system.codec(spec).decode, count) for (spec, _), count in entries.items()
        )

    def _entries(self, segment: Segment) -> float:
        assert segment.compressor is not None
        layout, compressor = segment_layout(self.plan, segment), build(segment.compressor)
        if not layout.indices:
            return compressor.work([self.plan.by_name[name].shape for name in segment.tensors])
        if self.system.style == "runtime":
            return float(layout.indices)  # it adds up what a message has room for, padding too
        asked_for = max(1.0, segment.density * self.plan.numel(segment))  # a message may have room for more
        return min(float(layout.indices), asked_for * self.behaviour.ratio(segment.compressor))

    # ---- helpers ----------------------------------------------------------------------------------------------------

    def _at(self, what: str, curve: Curve, size: float) -> float:
        if not curve.covers(size):
            known = f"{curve.sizes[0]:,.0f} .. {curve.sizes[-1]:,.0f}"
            self.outside.setdefault(what, f"{what}: {size:,.0f} where {known} is known")
        return curve(size)

    def _device(self, stage: str, name: str, work_s: float, after: tuple[int, ...] = (), lane: int = -1) -> int:
        return self._add(Task(stage, name, "device", work_s, 1.0, after, lane))  # type: ignore[arg-type]

    def _add(self, task: Task) -> int:
        self.tasks.append(task)
        return len(self.tasks) - 1
