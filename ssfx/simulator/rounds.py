"""A step of a training in rounds: steps alone, and the share that one of them has of a round's exchanges."""

from collections.abc import Sequence
from dataclasses import replace

from ssfx.planning.profile import Profile
from ssfx.planning.rounds import Rounds
from ssfx.simulator.pricing.schedule import schedule
from ssfx.simulator.pricing.task import Stage, Task


def average_step(
    tasks: Sequence[Task],
    end_s: float,
    profile: Profile,
    rounds: Rounds,
    accumulate: int,
    inside: Sequence[Task] = (),
) -> list[Task]:
    """Return the tasks of the average step of a round, given those of a step that exchanges at its end, and its end.

    `inside`: those of a step inside a group, where a group is more than a rank; they take the place of a step alone.

    T = alone + (compress + decompress + what waiting is left) / every. Of the waiting of a fragment `delay` steps are
    hidden: (wait - fragments * delay * alone) of a round is left.
    """
    alone_s = accumulate * (profile.forward_s + profile.backward_s) + profile.step_s + profile.other_s

    def on_device_s(stage: Stage) -> float:
        return sum(task.seconds for task in tasks if task.resource == "device" and task.stage == stage)

    calls = {stage: on_device_s(stage) for stage in ("compress", "decompress")}
    device_s = sum(task.seconds for task in tasks if task.resource == "device")
    wait_s = end_s - device_s
    hooks_s = device_s - alone_s - sum(calls.values())
    between_s = max((task.end_s for task in inside), default=alone_s)
    left_s = max(0.0, wait_s - rounds.fragments * rounds.delay * between_s)
    found = [replace(task) for task in inside] or [
        Task("forward", "forward", "device", accumulate * profile.forward_s, 1.0),
        Task("backward", "backward", "device", accumulate * profile.backward_s, 1.0),
        Task("step", "step", "device", profile.step_s, 1.0),
        Task("other", "other", "device", profile.other_s, 1.0),
    ]
    at = len(found)
    found += [
        Task("compress", "weights", "device", calls["compress"] / rounds.every, 1.0),
        Task("exchange", "weights", "network", left_s / rounds.every, 0.0, (at,)),
        Task("decompress", "average", "device", calls["decompress"] / rounds.every, 1.0, (at + 1,)),
        Task("other", "bookkeeping", "device", hooks_s / rounds.every, 1.0),
    ]
    if wait_s > left_s:
        hidden_s = (wait_s - left_s) / rounds.every
        found.insert(at + 2, Task("exchange", "hidden behind the next steps", "network", hidden_s, 0.0, (at,)))
    schedule(found)
    return found
