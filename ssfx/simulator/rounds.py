"""A step of a training in rounds: steps alone, and the share that one of them has of a round's exchanges."""

from collections.abc import Sequence

from ssfx.planning.profile import Profile
from ssfx.planning.rounds import Rounds
from ssfx.simulator.pricing.schedule import schedule
from ssfx.simulator.pricing.task import Stage, Task


def average_step(tasks: Sequence[Task], end_s: float, profile: Profile, rounds: Rounds, accumulate: int) -> list[Task]:
    """Return the tasks of the average step of a round, given those of a step that exchanges at its end, and its end.

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
    left_s = max(0.0, wait_s - rounds.fragments * rounds.delay * alone_s)
    found = [
        Task("forward", "forward", "device", accumulate * profile.forward_s, 1.0),
        Task("backward", "backward", "device", accumulate * profile.backward_s, 1.0),
        Task("compress", "weights", "device", calls["compress"] / rounds.every, 1.0),
        Task("exchange", "weights", "network", left_s / rounds.every, 0.0, (2,)),
        Task("decompress", "average", "device", calls["decompress"] / rounds.every, 1.0, (3,)),
        Task("step", "step", "device", profile.step_s, 1.0),
        Task("other", "other", "device", profile.other_s + hooks_s / rounds.every, 1.0),
    ]
    if wait_s > left_s:
        found.insert(
            4, Task("exchange", "hidden behind the next steps", "network", (wait_s - left_s) / rounds.every, 0.0, (2,))
        )
    schedule(found)
    return found
