"""From a plan to tasks: what one rank does in a step, stage by stage, as the runtime does it."""

from collections.abc import Sequence

from ssfx.planning.plan import Plan
from ssfx.planning.profile import Profile
from ssfx.simulator.pricing.plan_messages import Call, Message
from ssfx.simulator.pricing.prices import Times
from ssfx.simulator.pricing.task import Stage, Task


class Lowering:
    """Makes the tasks of one step of a plan, whose messages are priced, by bucket."""

    def __init__(self, plan: Plan, profile: Profile, system: Times, messages: Sequence[Sequence[Message]]) -> None:
        self.plan = plan
        self.profile = profile
        self.system = system
        self.tasks: list[Task] = []
        self._messages = [message for bucket in messages for message in bucket]
        self.backward_end = -1
        """Position of the last task of backward and of what it compresses."""
        self.launched = [messages[bucket][lane] for bucket, lane in plan.launch_order]
        self._ready: dict[int, int] = {}  # position of a tensor -> the task after which what it completes is ready
        self._decodes_on_the_way = system.style == "per_call" and plan.decode == "comm_stream"

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
        self.backward_end = self._backward()
        arrived = [self._exchange(index, message) for index, message in enumerate(self.launched)]
        self._finish(tuple(position for position in arrived if position is not None))
        return self.tasks

    # ---- the training thread ----------------------------------------------------------------------------------------

    def _backward(self) -> int:
        """Add backward and compression; return backward's last task."""
        added_s: dict[int, float] = {}
        calls: dict[int, Call] = {}
        dense: set[int] = set()
        for message in self._messages:
            added_s.update(message.added_s)  # no tensor is in two messages
            calls.update((call.at, call) for call in message.calls)
            dense.update(message.dense_at)
        hook_s, work_s, first, position = self.system.overheads.hook_s, 0.0, "", -1
        for at, (spec, gap_s) in enumerate(zip(self.profile.tensors, self.profile.ready_gap_s, strict=True)):
            first = first or spec.name
            work_s += gap_s + hook_s + added_s.get(at, 0.0)
            call = calls.get(at)
            if call is None and at not in dense:
                continue
            name = first if first == spec.name else f"{first} .. {spec.name}"
            self._ready[at] = position = self._device("backward", name, work_s)
            work_s, first = 0.0, ""
            if call is not None and call.on_host:
                self._ready[at] = self._offload(call, position)
            elif call is not None:
                self._ready[at] = position = self._device("compress", call.segments[-1].tensors[-1], call.work_s)
        if work_s:
            position = self._device("backward", first, work_s)
        return position

    def _offload(self, call: Call, after: int) -> int:
        """Add the way over the host: out, compressed there by its worker, back; return the last task."""
        (segment,) = call.segments
        name, end = segment.tensors[-1], after
        if call.out_s:
            end = self._add(Task("to_host", name, "copy_out", call.out_s, 0.0, (end,)))
        whole, demand = ",".join(segment.tensors), float(self.system.host_shares)
        end = self._add(Task("compress", whole, "host", call.work_s, demand, (end,)))
        if call.back_s:
            end = self._add(Task("from_host", name, "copy_in", call.back_s, 0.0, (end,)))
        return end

    # ---- the network and what follows ------------------------------------------------------------------------------

    def _exchange(self, index: int, message: Message) -> int | None:
        """Add the exchange of one message, its phases one after the other; return its last task."""
        after = {self._ready[at] for at in message.dense_at} | {self._ready[call.at] for call in message.calls}
        if not self.plan.overlap:
            after.add(self.backward_end)
        position = None
        for charge in message.charges:
            before = tuple(after) if position is None else (position,)
            position = self._add(
                Task(
                    "exchange",
                    message.name,
                    "network",
                    charge.work_s,
                    charge.demand,
                    before,
                    index,
                    charge.under_compute,
                    message.blocking,
                    charge.wire_s,
                )
            )
        if position is not None and self._decodes_on_the_way and message.decode_s:
            done = Task("decompress", message.name, "network", message.decode_s, 0.0, (position,), index)
            position = self._add(done)
        return position

    def _finish(self, wait: tuple[int, ...]) -> None:
        """Add what follows when everything has arrived: decoding lane by lane, the check, writing the averages."""
        overheads = self.system.overheads
        summed = sum(message.summed for message in self.launched)
        result_s = overheads.sum_s * summed + overheads.result_s * (len(self.plan.tensors) - summed)
        result_s += overheads.result_s_per_byte * sum(spec.nbytes for spec in self.plan.tensors)
        if any(message.compresses for message in self.launched):
            result_s += overheads.decode_s
        for index, ((_, lane), message) in enumerate(zip(self.plan.lanes(), self.launched, strict=True)):
            if message.decode_s and not self._decodes_on_the_way:
                self._device("decompress", lane.tensors[-1], message.decode_s, wait, index)
        self._device("decompress", "average", result_s, wait)

    def _device(self, stage: Stage, name: str, work_s: float, after: tuple[int, ...] = (), lane: int = -1) -> int:
        return self._add(Task(stage, name, "device", work_s, 1.0, after, lane))

    def _add(self, task: Task) -> int:
        self.tasks.append(task)
        return len(self.tasks) - 1
