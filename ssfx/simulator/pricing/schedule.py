"""The event loop: tasks on serial resources that share the rank's computing power while they overlap."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ssfx.simulator.pricing.task import RESOURCES, Task

MOST_TAKEN = 0.9
"""Exchanges never take all computing power from what runs at the same time: schedulers are fair."""


def shares(demands: Sequence[float], power: float = 1.0) -> list[float]:
    """Return what each of several running tasks gets of a computing power: max-min fair, never above its demand.

    This is what a fair scheduler does: whoever wants less than an equal share gets all it wants.
    """
    if sum(demands) <= power:
        return list(demands)
    given = [0.0] * len(demands)
    left, waiting = power, sorted(range(len(demands)), key=lambda i: demands[i])
    while waiting:
        i = waiting.pop(0)
        given[i] = min(demands[i], left / (len(waiting) + 1))
        left -= given[i]
    return given


def schedule(tasks: list[Task], burst_s: float = 0.0, in_flight: int = 1) -> float:
    """Fill in when every task starts and ends; return when the last one ends.

    A resource starts its tasks in list order and waits for one that is not ready (head-of-line order); each does one at
    a time, the network `in_flight`, unless one of them is blocking. A task that gets less computing power than it
    demands, or less of the wire, proceeds in proportion. An exchange saves up to `burst_s` of its time on the wire if
    the network has rested as long before; the first one finds it rested. Raises ValueError for tasks that wait for
    later ones of their own resource.
    """
    queues: dict[str, list[int]] = {name: [] for name in RESOURCES}
    for position, task in enumerate(tasks):
        queues[task.resource].append(position)
    lines = [_Line(queue, in_flight if name == "network" else 1) for name, queue in queues.items() if queue]
    line_of = {tasks[line.queue[0]].resource: line for line in lines}
    waited_by: list[list[int]] = [[] for _ in tasks]
    waits = []
    for position, task in enumerate(tasks):
        earlier = set(task.after)
        waits.append(len(earlier))
        for one in earlier:
            waited_by[one].append(position)
    plain = all(task.under_compute is None and not task.wire_s for task in tasks)
    running: dict[int, float] = {}  # position -> work left, in seconds at full speed
    last_release = [-1] * len(tasks)
    now = 0.0
    left = len(tasks)
    while left:
        for line in lines:
            if line.head == line.size or waits[line.queue[line.head]]:
                continue
            while line.open(tasks) and not waits[line.queue[line.head]]:
                position = line.queue[line.head]
                task = tasks[position]
                task.start_s = now
                task.released_by = line.released_by(tasks, last_release[position], now)
                if burst_s and task.resource == "network":
                    task.saved_s = min(burst_s, line.rested_s(tasks, now, burst_s), task.wire_s)
                running[position] = task.work_s - task.saved_s
                line.head += 1
                line.started = position
                line.running.append(position)
        if not running:
            stuck = next(task.name for task, waiting in zip(tasks, waits, strict=True) if waiting)
            raise ValueError(f"task {stuck!r} waits for a task that can only start after it")
        ended = []
        if plain and sum([tasks[position].demand for position in running]) <= 1.0:  # all at full speed
            step_s = min(running.values())
            for position, work in running.items():
                if work - step_s <= 1e-15:
                    ended.append(position)
                else:
                    running[position] = work - step_s
        else:
            rates = _rates(tasks, list(running))
            step_s = min([work / rates[position] for position, work in running.items()])
            for position, work in running.items():
                rest = work - step_s * rates[position]
                if rest <= 1e-15 or work / rates[position] <= step_s:
                    ended.append(position)
                else:
                    running[position] = rest
        now += step_s
        for position in ended:
            task = tasks[position]
            task.end_s = now
            del running[position]
            line = line_of[task.resource]
            line.last = position
            line.running.remove(position)
            for later in waited_by[position]:
                waits[later] -= 1
                last_release[later] = position
        left -= len(ended)
    return now


@dataclass(slots=True)
class _Line:
    """The queue of a resource: how many it works on at a time, what starts next, what runs, started and ended last."""

    queue: list[int]
    width: int
    head: int = 0
    running: list[int] = field(default_factory=list)
    started: int = -1
    last: int = -1
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = len(self.queue)

    def open(self, tasks: Sequence[Task]) -> bool:
        """Return whether the next task may start, as far as the resource is concerned."""
        if self.head == self.size or len(self.running) == self.width:
            return False
        return not self.running or not any(tasks[position].blocking for position in self.running)

    def released_by(self, tasks: Sequence[Task], dependency: int, now: float) -> int:
        """Return the task whose end lets the next one start now: a dependency, one that made room, or neither.

        In that case it was ready and had room, but had to wait for its turn: what let the one before it start.
        """
        for position in (dependency, self.last):
            if position >= 0 and tasks[position].end_s == now:
                return position
        return tasks[self.started].released_by if self.started >= 0 else -1

    def rested_s(self, tasks: Sequence[Task], now: float, most_s: float) -> float:
        """Return for how long nothing has run; `most_s` if nothing has run at all."""
        if self.running:
            return 0.0
        return now - tasks[self.last].end_s if self.last >= 0 else most_s


def _rates(tasks: Sequence[Task], running: Sequence[int]) -> dict[int, float]:
    """Return how fast every running task proceeds, 1 being undisturbed."""
    rates, taken = {}, 0.0
    exchanges = [position for position in running if tasks[position].resource == "network"]
    if any(tasks[position].under_compute is not None for position in exchanges):
        computing = any(tasks[position].demand > 0 for position in running if tasks[position].resource != "network")
        for position in exchanges:
            task = tasks[position]
            if task.under_compute is None:
                continue
            under_compute_s, cpu_s = task.under_compute
            # It may be faster than alone: a core that computes need not be woken.
            took_s = under_compute_s if computing else task.work_s
            rates[position] = task.work_s / took_s if took_s else 1.0
            taken += cpu_s / took_s if computing and took_s else 0.0
    others = [position for position in running if position not in rates]
    demands = [tasks[position].demand for position in others]
    for position, demand, share in zip(others, demands, shares(demands, 1.0 - min(MOST_TAKEN, taken)), strict=True):
        rates[position] = share / demand if demand else 1.0
    if len(exchanges) > 1:
        sharing = [position for position in exchanges if tasks[position].wire_s]
        wires = sum([tasks[position].wire_s / tasks[position].work_s for position in sharing])
        if wires > 1:
            for position in sharing:
                rates[position] /= wires
    return rates
