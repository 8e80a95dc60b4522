"""simulate(): one step of a plan in virtual time, and what can be read off it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from ssfx.core.intervals import union_s
from ssfx.perf_model.timing_model import TimingModel
from ssfx.planning.plan import Plan
from ssfx.planning.profile import Profile
from ssfx.simulator.pricing.lowering import Lowering
from ssfx.simulator.pricing.plan_messages import PlanMessages
from ssfx.simulator.pricing.schedule import schedule
from ssfx.simulator.pricing.selection_stats import SelectionStats, Volumes
from ssfx.simulator.pricing.task import STAGES, Stage, Task
from ssfx.simulator.pricing.timeline import undisturbed
from ssfx.simulator.rounds import average_step


@dataclass(frozen=True)
class Simulated:
    """One step of one rank in virtual time; all ranks are alike.

    `outside` has a line for everything that was charged beyond the range it is known for: such times are
    extrapolations. Stages on the device end one another, so their times and the wait add up to the iteration.
    `selection` is what was assumed of its compressors. `inside`: of rounds between groups, a step inside a group.
    """

    plan: Plan
    tasks: tuple[Task, ...]
    iteration_s: float
    outside: tuple[str, ...]
    selection: SelectionStats
    inside: Simulated | None = field(default=None, kw_only=True)

    def on_device_s(self, *stages: Stage) -> float:
        """Return the seconds that the device spent in `stages`, slowed down by what ran at the same time."""
        return sum(task.seconds for task in self.tasks if task.resource == "device" and task.stage in stages)

    @cached_property
    def exposed_comm_s(self) -> float:
        """Seconds the device waits, once backward has ended, for exchanges and what they wait for."""
        device = [task for task in self.tasks if task.resource == "device"]
        return sum(later.start_s - earlier.end_s for earlier, later in pairwise(device))

    @cached_property
    def comm_s(self) -> float:
        """Seconds during which an exchange is under way."""
        return union_s([(task.start_s, task.end_s) for task in self.tasks if task.stage == "exchange"])

    @cached_property
    def critical_path(self) -> tuple[Task, ...]:
        """The chain of tasks, first to last, each of which started when the one before it ended; it spans the step."""
        position = max(range(len(self.tasks)), key=lambda i: (self.tasks[i].end_s, i))
        path = []
        while position >= 0:
            path.append(self.tasks[position])
            position = self.tasks[position].released_by
        return tuple(reversed(path))

    def critical_s(self) -> dict[Stage, float]:
        """Return the seconds of the critical path by stage; they sum to the iteration time."""
        total = dict.fromkeys(STAGES, 0.0)
        for task in self.critical_path:
            total[task.stage] += task.seconds
        return total

    @property
    def volumes(self) -> Volumes:
        """What a rank hands over to the exchanges of the step, and what it sends, in bytes."""
        own, inside = self.selection.volumes(self.plan), self.inside
        return own if inside is None else Volumes(*map(sum, zip(own, inside.volumes, strict=True)))

    def slowdown_s(self) -> float:
        """Return by how much contention stretched the tasks of the critical path."""
        return sum(max(0.0, task.seconds - task.work_s + task.saved_s) for task in self.critical_path)

    def metrics(self, samples: int) -> dict[str, float | None]:
        """Return the metrics of a row, as the runtime measures them; `samples` are processed by all ranks in a step."""
        parts = {
            "forward_s": self.on_device_s("forward"),
            "backward_s": self.on_device_s("backward"),
            "sparsify_s": self.on_device_s("compress", "decompress"),
            "exposed_comm_s": self.exposed_comm_s,
            "step_s": self.on_device_s("step"),
            "other_s": self.on_device_s("other"),
        }
        volumes = self.volumes
        return {
            "iteration_s": self.iteration_s,
            **parts,
            "comm_s": self.comm_s,
            "throughput_samples_per_s": samples / self.iteration_s,
            "contributed_bytes": volumes.contributed,
            "sent_bytes": volumes.sent,
        }


def simulate(
    plan: Plan,
    profile: Profile,
    system: TimingModel,
    *,
    selection: SelectionStats | None = None,
    accumulate: int = 1,
    contention: bool = True,
    priced: PlanMessages | None = None,
    inside: Simulated | None = None,
) -> Simulated:
    """Return one step of `plan` in virtual time on `system`; `profile` lists the plan's tensors in the plan's order.

    Of a plan of rounds it is the average step of a round; `inside` is a step inside a group, where there are groups.

    Without `contention` exchanges take no computing power and run one at a time: what `evaluate` prices plans by.
    `priced`: from an earlier step of the same plan on the same system with the same selection, for any profile.

    Raises ConfigError when the system has no times for a compressor or collective of the plan, ValueError when plan,
    profile and system do not belong together.
    """
    if [spec.name for spec in profile.tensors] != [spec.name for spec in plan.tensors]:
        raise ValueError("the profile and the plan list different tensors or another order")
    if plan.world_size != system.world_size:
        raise ValueError(f"the plan is for {plan.world_size} ranks, the system has {system.world_size}")
    selection = selection or SelectionStats()
    priced = priced or PlanMessages(system, selection, notes=True)
    tasks = Lowering(plan, profile, system, priced.of(plan)).step(accumulate)
    iteration_s = schedule(tasks, system.burst_s, system.contention.in_flight) if contention else undisturbed(tasks)
    if plan.rounds is not None and plan.world_size > 1:
        if (inside is None) is not (plan.rounds.ranks_per_group == 1):
            raise ValueError("rounds between groups need the step inside a group, and no others do")
        tasks = average_step(
            tasks, iteration_s, profile, plan.rounds, accumulate, inside.tasks if inside is not None else ()
        )
        iteration_s = max(task.end_s for task in tasks if task.resource == "device")
    return Simulated(plan, tuple(tasks), iteration_s, priced.prices.outside, selection, inside=inside)
