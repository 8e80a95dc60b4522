"""The event loop: tasks on serial resources that share the rank's computing power while they overlap."""

from __future__ import annotations

from collections.abc import Sequence

from ssfx.simulator.task import RESOURCES, Task


def shares(demands: Sequence[float]) -> list[float]:
    """Return what each of several running tasks gets of a computing power of 1: max-min fair, never above its demand.

    This is what a fair scheduler does: whoever wants less than an equal share gets all it wants.
    """
    if sum(demands) <= 1:
        return list(demands)
    given = [0.0] * len(demands)
    left, waiting = 1.0, sorted(range(len(demands)), key=lambda i: demands[i])
    while waiting:
        i = waiting.pop(0)
        given[i] = min(demands[i], left / (len(waiting) + 1))
        left -= given[i]
    return given


def schedule(tasks: list[Task]) -> float:
    """Fill in when every task starts and ends; return when the last one ends.

    A resource takes its tasks in list order and waits for one that is not ready (head-of-line order). A task that gets
    less computing power than it demands proceeds in proportion. Raises ValueError for tasks that wait for later ones of
    their own resource.
    """
    queues: dict[str, list[int]] = {name: [] for name in RESOURCES}
    for position, task in enumerate(tasks):
        queues[task.resource].append(position)
    lines = [(queue, [0]) for queue in queues.values() if queue]
    waits = [len(set(task.after)) for task in tasks]
    waited_by: list[list[int]] = [[] for _ in tasks]
    for position, task in enumerate(tasks):
        for earlier in set(task.after):
            waited_by[earlier].append(position)
    running: dict[int, float] = {}  # position -> work left, in seconds at full speed
    last_on = dict.fromkeys(RESOURCES, -1)
    last_release = [-1] * len(tasks)
    now = 0.0
    left = len(tasks)
    rates: dict[int, float] = {}
    while left:
        changed = False
        for queue, at in lines:
            if at[0] == len(queue):
                continue
            position = queue[at[0]]
            if position in running or waits[position]:
                continue
            task = tasks[position]
            task.start_s = now
            before = last_on[task.resource]
            released = last_release[position]
            if before >= 0 and (released < 0 or tasks[before].end_s > tasks[released].end_s):
                released = before
            task.released_by = released
            running[position] = task.work_s
            changed = True
        if not running:
            stuck = next(task.name for task, waiting in zip(tasks, waits, strict=True) if waiting)
            raise ValueError(f"task {stuck!r} waits for a task that can only start after it")
        if changed or not rates:
            rates = _rates(tasks, list(running))
        step_s = min(work / rates[position] for position, work in running.items())
        now += step_s
        ended = []
        for position, work in running.items():
            rest = work - step_s * rates[position]
            if rest <= 1e-15 or work / rates[position] <= step_s:
                ended.append(position)
            else:
                running[position] = rest
        for position in ended:
            task = tasks[position]
            task.end_s = now
            del running[position]
            last_on[task.resource] = position
            for queue, at in lines:
                if at[0] < len(queue) and queue[at[0]] == position:
                    at[0] += 1
            for later in waited_by[position]:
                waits[later] -= 1
                last_release[later] = position
        left -= len(ended)
        rates = {}
    return now


def _rates(tasks: Sequence[Task], running: Sequence[int]) -> dict[int, float]:
    demands = [tasks[position].demand for position in running]
    given = shares(demands)
    return {
        position: share / demand if demand else 1.0
        for position, demand, share in zip(running, demands, given, strict=True)
    }
