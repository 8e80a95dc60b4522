"""The price of a plan: when a step's gradients are all exchanged if nothing gets in the way of anything else.

Planners, `ssfx plan` and the simulator charge by the same prices (`prices`). Here everything runs undisturbed (`flow`);
the simulator adds what tasks at the same time cost one another. Source: SSFusion section IV-A and Espresso section 4.2
for three serial resources: the compute stream, one host worker, the network (D-42).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ssfx.collectives import Load, collectives
from ssfx.core.lazy import numpy as np
from ssfx.planning.costs import Costs
from ssfx.planning.plan import Plan
from ssfx.planning.profile import Profile
from ssfx.simulator.pricing.flow import Backward, Flow, HostJobs
from ssfx.simulator.pricing.lowering import Lowering
from ssfx.simulator.pricing.plan_messages import Message, PlanMessages
from ssfx.simulator.pricing.prices import Times, primitive_of
from ssfx.simulator.pricing.schedule import schedule
from ssfx.simulator.pricing.task import Task

if TYPE_CHECKING:
    from ssfx.simulator.pricing.flow import FlowMoments


@dataclass(frozen=True, slots=True)
class LaneTime:
    """When one lane was ready, started and ended, in seconds from the start of backward."""

    ready_s: float
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """The outcome of `evaluate`: all times in seconds from the start of backward.

    backward_end_s: backward with the compression on the device. lanes: one per launched lane. decode_s: all decoding.
    total_s: when the averages of all gradients are written, F(plan).
    """

    backward_end_s: float
    lanes: tuple[LaneTime, ...]
    decode_s: float
    total_s: float


class StepPrices:
    """Prices the plans of one profile on one system; what they share is worked out once."""

    def __init__(self, profile: Profile, system: Times) -> None:
        self.profile, self.system = profile, system
        self.names = [spec.name for spec in profile.tensors]
        self.backward = Backward(profile, system)
        self.messages = PlanMessages(system)
        self._disturbed: dict[int, tuple[Plan, float]] = {}  # with the plan, so that its identity stays its own

    def total_s(self, plan: Plan) -> float:
        """Return F(plan): when the averages of all gradients are written."""
        return self._moments(plan)[1].total_s

    def timeline(self, plan: Plan) -> Timeline:
        """Return the timeline of a plan; see evaluate."""
        messages, found = self._moments(plan)
        ready, start, end = found.ready_s.tolist(), found.start_s.tolist(), found.end_s.tolist()
        lanes, network_s = [], 0.0
        for message, at in zip(messages, zip(ready, start, end, strict=True), strict=True):
            if not message.charges:  # nothing to send
                lanes.append(LaneTime(network_s, network_s, network_s))
            else:
                lanes.append(LaneTime(*at))
                network_s = at[2]
        return Timeline(
            found.backward_end_s, tuple(lanes), sum(message.decode_s for message in messages), found.total_s
        )

    def disturbed_s(self, plan: Plan) -> float:
        """Return when the averages are written if exchanges take their share of the computing power.

        What takes part in contention besides, such as the rest of a line, only a simulation knows.
        """
        if id(plan) not in self._disturbed:
            ends_s = schedule(Lowering(plan, self.profile, self.system, self.messages.of(plan)).gradients())
            self._disturbed[id(plan)] = plan, ends_s
        return self._disturbed[id(plan)][1]

    def _moments(self, plan: Plan) -> tuple[list[Message], FlowMoments]:
        if self.names != [spec.name for spec in plan.tensors]:
            raise ValueError("the profile and the plan list different tensors or another order")
        messages = self.messages.of(plan)
        launched = [messages[bucket][lane] for bucket, lane in plan.launch_order]
        return launched, self.backward.times(self._flow(plan, messages, launched))

    def _flow(self, plan: Plan, messages: Sequence[Sequence[Message]], launched: Sequence[Message]) -> Flow:
        over, on_the_way = self.system.overheads, self.system.style == "per_call" and plan.decode == "comm_stream"
        added_s, call_s = np.zeros(len(self.names)), np.zeros(len(self.names))
        at: list[int] = []
        seconds: list[float] = []
        calls_at: list[int] = []
        calls_s: list[float] = []
        for bucket in messages:
            for message in bucket:
                at += message.added_s
                seconds += message.added_s.values()
                for call in message.calls:
                    if not call.on_host:
                        calls_at.append(call.at)
                        calls_s.append(call.work_s)
        added_s[at], call_s[calls_at] = seconds, calls_s
        decode_s = sum(message.decode_s for message in launched)
        after_s = (over.sum_s - over.result_s) * sum(message.summed for message in launched)
        after_s += over.decode_s if any(message.compresses for message in launched) else 0.0
        network_s = [
            message.network_s + (message.decode_s if on_the_way and message.charges else 0.0) for message in launched
        ]
        return Flow(
            added_s,
            call_s,
            np.array([message.last for message in launched], dtype=np.int64),
            np.array(network_s),
            after_s + (0.0 if on_the_way else decode_s),
            _jobs(launched),
            plan.overlap,
        )


def _jobs(launched: Sequence[Message]) -> HostJobs | None:
    jobs = [(call.at, i, call) for i, message in enumerate(launched) for call in message.calls if call.on_host]
    if not jobs:
        return None
    jobs.sort(key=lambda job: job[0])
    at, owner = np.array([job[0] for job in jobs]), np.array([job[1] for job in jobs])
    out_s, work_s, back_s = (
        np.array(column) for column in zip(*((c.out_s, c.work_s, c.back_s) for *_, c in jobs), strict=True)
    )
    return HostJobs(at, owner, out_s, work_s, back_s)


def evaluate(plan: Plan, profile: Profile, costs: Times) -> Timeline:
    """Return the timeline of `plan` without contention; `profile` must list the plan's tensors in the plan's order.

    The network starts messages in launch order; a ready lane waits for earlier ones. Where compression on the host
    takes its time from the cores that train (`host_shares`), both proceed at half their speed while both run.
    """
    return StepPrices(profile, costs).timeline(plan)


def disturbed_s(plan: Plan, profile: Profile, costs: Times) -> float:
    """Return when the averages of all gradients are written if exchanges take their share of the computing power."""
    return StepPrices(profile, costs).disturbed_s(plan)


def undisturbed(tasks: list[Task]) -> float:
    """Fill in when every task starts and ends if exchanges take no computing power, one at a time; return the end."""
    for task in tasks:
        if task.resource == "network":
            task.demand, task.under_compute, task.wire_s = 0.0, None, 0.0
    if any(task.resource == "host" and task.demand for task in tasks):
        return schedule(tasks)
    free_s = {"device": 0.0, "host": 0.0, "network": 0.0, "copy_out": 0.0, "copy_in": 0.0}
    for task in tasks:
        task.start_s = max(free_s[task.resource], max([tasks[position].end_s for position in task.after], default=0.0))
        task.end_s = free_s[task.resource] = task.start_s + task.work_s
    return max(free_s.values())


def exchange_s(collective: str, load: Load, costs: Costs) -> float:
    """Return the seconds of one exchange: its own curve if it was calibrated as a whole, else the sum of its phases."""
    if load.world_size == 1 or not load.nbytes:
        return 0.0
    if collective in costs.exchange:
        return costs.exchange_s(collective, load.nbytes)
    total_s = 0.0
    for phase in collectives.build(collective).phases(load):
        compute = {"encode": costs.encode, "decode": costs.decode}.get(phase.primitive)
        seconds = compute(phase.size) if compute else costs.exchange_s(primitive_of(phase, costs.exchange), phase.size)
        total_s += phase.times * seconds
    return total_s
