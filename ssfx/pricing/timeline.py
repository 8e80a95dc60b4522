"""The price of a plan: when a step's gradients are all exchanged if nothing gets in the way of anything else.

Planners, `ssfx plan` and the simulator charge the same tasks (`lowering`) by the same prices (`plan_prices`). Here
they run undisturbed; the simulator adds what tasks at the same time cost one another. Source: SSFusion section IV-A
and Espresso section 4.2 for three serial resources: the compute stream, one host worker, the network (D-42).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ssfx.collectives import Load, collectives
from ssfx.planning.costs import Costs
from ssfx.planning.plan import Plan
from ssfx.planning.profile import Profile
from ssfx.pricing.lane_prices import LanePrices
from ssfx.pricing.lowering import Lowering
from ssfx.pricing.plan_prices import SelectionStats, Times, primitive_of
from ssfx.pricing.schedule import schedule
from ssfx.pricing.task import Task

_AS_PLANNED = SelectionStats()


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


def evaluate(plan: Plan, profile: Profile, costs: Times, known: LanePrices | None = None) -> Timeline:
    """Return the timeline of `plan` without contention; `profile` must list the plan's tensors in the plan's order.

    The network starts messages in launch order; a ready lane waits for earlier ones. Where compression on the host
    takes its time from the cores that train (`host_shares`), both proceed at half their speed while both run. `known`
    takes and gives the prices of messages that several plans of one profile and one network share.
    """
    if [spec.name for spec in profile.tensors] != [spec.name for spec in plan.tensors]:
        raise ValueError("the profile and the plan list different tensors or another order")
    tasks = Lowering(plan, profile, costs, _AS_PLANNED, known).gradients()
    total_s = undisturbed(tasks)
    on_device = [task.end_s for task in tasks if task.resource == "device" and task.stage in ("backward", "compress")]
    decode_s = sum(task.work_s for task in tasks if task.stage == "decompress" and task.name != "average")
    return Timeline(max(on_device, default=0.0), _lanes(plan, tasks), decode_s, total_s)


def disturbed_s(plan: Plan, profile: Profile, costs: Times, known: LanePrices | None = None) -> float:
    """Return when the averages of all gradients are written if exchanges take their share of the computing power.

    What takes part in contention besides, such as the rest of a line, only a simulation knows.
    """
    return schedule(Lowering(plan, profile, costs, _AS_PLANNED, known).gradients())


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


def _lanes(plan: Plan, tasks: Sequence[Task]) -> tuple[LaneTime, ...]:
    spans: dict[int, list[Task]] = {}
    for task in tasks:
        if task.resource == "network":
            spans.setdefault(task.lane, []).append(task)
    found, network_s = [], 0.0
    for index in range(len(plan.launch_order)):
        if own := spans.get(index):
            ready_s = max((tasks[position].end_s for position in own[0].after), default=0.0)
            network_s = own[-1].end_s
            found.append(LaneTime(ready_s, own[0].start_s, network_s))
        else:  # nothing to send
            found.append(LaneTime(network_s, network_s, network_s))
    return tuple(found)


def exchange_s(collective: str, load: Load, costs: Costs) -> float:
    """Return the seconds of one exchange: its own curve if it was calibrated as a whole, else the sum of its phases."""
    if load.world_size == 1 or not load.nbytes:
        return 0.0
    if collective in costs.exchange:
        return costs.exchange_s(collective, load.nbytes)
    total_s = 0.0
    for phase in collectives.build(collective).phases(load):
        compute = {"encode": costs.encode, "decode": costs.decode}.get(phase.primitive)
        total_s += compute(phase.size) if compute else costs.exchange_s(primitive_of(phase, costs.exchange), phase.size)
    return total_s
