"""The price of a plan: when a step's gradients are all exchanged if nothing gets in the way of anything else.

Planners, `ssfx plan` and the simulator charge by the same prices (`prices`). Here everything runs undisturbed; the
simulator adds what tasks at the same time cost one another. Source: SSFusion section IV-A and Espresso section 4.2
for three serial resources: the compute stream, one host worker, the network (D-42).
"""

from __future__ import annotations

from dataclasses import dataclass

from ssfx.planning.plan import Plan
from ssfx.planning.profile import Profile
from ssfx.simulator.pricing.lowering import Lowering
from ssfx.simulator.pricing.plan_messages import PlanMessages
from ssfx.simulator.pricing.prices import Times
from ssfx.simulator.pricing.schedule import schedule
from ssfx.simulator.pricing.task import Task


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
    """Prices the plans of one profile on one system; what their messages share is worked out once."""

    def __init__(self, profile: Profile, system: Times) -> None:
        self.profile, self.system = profile, system
        self.names = [spec.name for spec in profile.tensors]
        self.messages = PlanMessages(system)
        self._disturbed: dict[int, tuple[Plan, float]] = {}  # with the plan, so that its identity stays its own

    def total_s(self, plan: Plan) -> float:
        """Return F(plan): when the averages of all gradients are written."""
        return undisturbed(self._lowered(plan).gradients())

    def timeline(self, plan: Plan) -> Timeline:
        """Return the timeline of a plan; see evaluate."""
        lowered = self._lowered(plan)
        tasks = lowered.gradients()
        total_s = undisturbed(tasks)
        on_network: dict[int, list[Task]] = {}
        for task in tasks:
            if task.resource == "network":
                on_network.setdefault(task.lane, []).append(task)
        lanes, network_s = [], 0.0
        for index in range(len(plan.launch_order)):
            if sent := on_network.get(index):
                ready_s = max([tasks[position].end_s for position in sent[0].after], default=0.0)
                lanes.append(LaneTime(ready_s, sent[0].start_s, sent[-1].end_s))
                network_s = sent[-1].end_s
            else:  # nothing to send
                lanes.append(LaneTime(network_s, network_s, network_s))
        decode_s = sum(message.decode_s for message in lowered.launched)
        return Timeline(tasks[lowered.backward_end].end_s, tuple(lanes), decode_s, total_s)

    def disturbed_s(self, plan: Plan) -> float:
        """Return when the averages are written if exchanges take their share of the computing power.

        What takes part in contention besides, such as the rest of a line, only a simulation knows.
        """
        if id(plan) not in self._disturbed:
            self._disturbed[id(plan)] = plan, schedule(self._lowered(plan).gradients())
        return self._disturbed[id(plan)][1]

    def _lowered(self, plan: Plan) -> Lowering:
        if self.names != [spec.name for spec in plan.tensors]:
            raise ValueError("the profile and the plan list different tensors or another order")
        return Lowering(plan, self.profile, self.system, self.messages.of(plan))


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
