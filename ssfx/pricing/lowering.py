"""From a plan to tasks: what one rank does in a step, stage by stage, as the runtime does it."""

from __future__ import annotations

from ssfx.planning.plan import Lane, Plan, Segment
from ssfx.planning.profile import Profile
from ssfx.pricing.arrivals import Arrival, arrivals
from ssfx.pricing.lane_prices import LanePrice, LanePrices, lane_price
from ssfx.pricing.message_sizes import segment_bytes
from ssfx.pricing.plan_prices import Prices, SelectionStats, Times
from ssfx.pricing.task import Stage, Task

_NOTHING = Arrival()


class Lowering:
    """Makes the tasks of one step. `outside` says what was charged beyond the range its curve is known for.

    `known` holds the prices of messages of other plans for the same profile, system and selection, and takes those of
    this one.
    """

    def __init__(
        self, plan: Plan, profile: Profile, system: Times, selection: SelectionStats, known: LanePrices | None = None
    ) -> None:
        self.plan = plan
        self.profile = profile
        self.system = system
        self.tasks: list[Task] = []
        self._prices = Prices(plan, system, selection)
        self._known = LanePrices() if known is None else known
        self._ready: dict[tuple[str, ...], int] = {}  # segment -> the task after which it is ready
        self._decodes_on_the_way = system.style == "per_call" and plan.decode == "comm_stream"

    @property
    def outside(self) -> tuple[str, ...]:
        """Return a line for everything that was charged beyond its known range."""
        return tuple(self._prices.outside.values())

    def step(self, accumulate: int = 1) -> list[Task]:
        """Return the tasks of one optimizer step of `accumulate` micro-batches; the last one exchanges."""
        profile, system = self.profile, self.system
        for _ in range(accumulate - 1):
            self._device("forward", "forward", profile.forward_s)
            self._device("backward", "backward", profile.backward_s)
        self._device("forward", "forward", profile.forward_s)
        if self.plan.world_size == 1:
            self._device("backward", "backward", profile.backward_s)
        else:
            self.gradients()
        self._device("step", "step", profile.step_s)
        self._device("other", "other", profile.other_s)
        if self.plan.world_size > 1:
            self._device("other", "bookkeeping", system.overheads.finish_s)
        return self.tasks

    def gradients(self) -> list[Task]:
        """Add backward and everything until the averages of all gradients are written; return all tasks."""
        end = self._backward()
        arrived = [self._exchange(index, lane, end) for index, (_, lane) in enumerate(self.plan.lanes())]
        self._finish([position for position in arrived if position is not None])
        return self.tasks

    # ---- the training thread ----------------------------------------------------------------------------------------

    def _backward(self) -> int:
        """Add backward and compression; return backward's last task."""
        overheads = self.system.overheads
        found = arrivals(self._price(lane).arrivals for bucket in self.plan.buckets for lane in bucket.lanes)
        work_s, first, position = 0.0, "", -1
        for spec, gap_s in zip(self.profile.tensors, self.profile.ready_gap_s, strict=True):
            first, arrival = first or spec.name, found.get(spec.name, _NOTHING)
            work_s += gap_s + overheads.hook_s + overheads.lane_s * arrival.issued
            work_s += overheads.offload_s * sum(one.placement == "host" for call, _ in arrival.calls for one in call)
            if arrival.filled:
                work_s += overheads.fill_s_per_byte * spec.nbytes
            if not arrival.dense and not arrival.calls:
                continue
            name = first if first == spec.name else f"{first} .. {spec.name}"
            position = self._device("backward", name, work_s)
            work_s, first = 0.0, ""
            for segment in arrival.dense:
                self._ready[segment.tensors] = position
            for segments, call_s in arrival.calls:
                position = self._compress(segments, call_s, position)
        if work_s:
            position = self._device("backward", first, work_s)
        return position

    def _price(self, lane: Lane) -> LanePrice:
        by_lane = self.system.style == "batched"
        return self._known.of(lane, lambda: lane_price(self.plan, lane, self._prices, by_lane, self._call_s))

    def _call_s(self, segments: list[Segment]) -> float:
        """Return the seconds of one call where it works: on the host, or on the device with its bookkeeping."""
        if segments[0].placement == "host":
            return self._prices.host_s(segments[0])
        added_s = self.system.overheads.add_s * sum(len(segment.tensors) for segment in segments)
        return self._prices.encode_s(segments) + added_s

    def _compress(self, segments: list[Segment], call_s: float, position: int) -> int:
        """Add one call that follows the device's task `position`; return the device's last task."""
        name = segments[-1].tensors[-1]
        if segments[0].placement == "host":
            end = self._offload(segments[0], name, call_s, position)
        else:
            end = position = self._device("compress", name, call_s)
        self._ready.update((segment.tensors, end) for segment in segments)
        return position

    def _offload(self, segment: Segment, name: str, host_s: float, after: int) -> int:
        """Add the way over the host: out, compressed there by its worker, back; return the last task."""
        assert segment.compressor is not None
        pcie = 0.0 if self.system.codec(segment.compressor).host_copies else self.system.pcie_s_per_byte
        end = after
        if pcie:
            end = self._add(Task("to_host", name, "copy_out", 4 * self.plan.numel(segment) * pcie, 0.0, (end,)))
        whole, demand = ",".join(segment.tensors), float(self.system.host_shares)
        end = self._add(Task("compress", whole, "host", host_s, demand, (end,)))
        if pcie:
            back_s = segment_bytes(self.plan, segment) * pcie
            end = self._add(Task("from_host", name, "copy_in", back_s, 0.0, (end,)))
        return end

    # ---- the network and what follows ------------------------------------------------------------------------------

    def _exchange(self, index: int, lane: Lane, backward_end: int) -> int | None:
        """Add the exchange of one lane, its phases one after the other; return its last task."""
        after = {self._ready[segment.tensors] for segment in lane.segments if segment.tensors in self._ready}
        if not self.plan.overlap:
            after.add(backward_end)
        position, price = None, self._price(lane)
        for charge in price.charges:
            before = tuple(after) if position is None else (position,)
            position = self._add(
                Task(
                    "exchange", price.name, "network", charge.work_s, charge.demand, before, index,
                    charge.under_compute, price.blocking, charge.wire_s,
                )
            )  # fmt: skip
        if position is not None and self._decodes_on_the_way and price.decode_s:
            position = self._add(Task("decompress", price.name, "network", price.decode_s, 0.0, (position,), index))
        return position

    def _finish(self, arrived: list[int]) -> None:
        """Add what follows when everything has arrived: decoding lane by lane, the check, writing the averages."""
        overheads = self.system.overheads
        lanes = [lane for _, lane in self.plan.lanes()]
        summed = sum(self._price(lane).summed for lane in lanes)
        result_s = overheads.sum_s * summed + overheads.result_s * (len(self.plan.tensors) - summed)
        result_s += overheads.result_s_per_byte * sum(spec.nbytes for spec in self.plan.tensors)
        if any(segment.compressor for lane in lanes for segment in lane.segments):
            result_s += overheads.decode_s
        wait = tuple(arrived)
        for index, (_, lane) in enumerate(self.plan.lanes()):
            seconds = 0.0 if self._decodes_on_the_way else self._price(lane).decode_s
            if seconds:
                self._device("decompress", lane.tensors[-1], seconds, wait, index)
        self._device("decompress", "average", result_s, wait)

    def _device(self, stage: Stage, name: str, work_s: float, after: tuple[int, ...] = (), lane: int = -1) -> int:
        return self._add(Task(stage, name, "device", work_s, 1.0, after, lane))

    def _add(self, task: Task) -> int:
        self.tasks.append(task)
        return len(self.tasks) - 1
