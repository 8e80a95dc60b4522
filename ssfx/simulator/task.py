"""A task: one stage of the plan on one resource, as the simulator schedules it and as a trace shows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Stage = Literal[
    "forward", "backward", "compress", "to_host", "from_host", "exchange", "decompress", "step", "other"
]  # fmt: skip
Resource = Literal["device", "host", "copy_out", "copy_in", "network"]

STAGES: tuple[Stage, ...] = (
    "forward", "backward", "compress", "to_host", "from_host", "exchange", "decompress", "step", "other",
)  # fmt: skip
RESOURCES: tuple[Resource, ...] = ("device", "host", "copy_out", "copy_in", "network")
"""Each starts its tasks in the order in which they were added to it; all but the network do one at a time."""


@dataclass(slots=True)
class Task:
    """`work_s` seconds of `resource` when nothing disturbs it, not before the tasks `after` (positions) have ended.

    `demand` is the share of the rank's computing power that the task needs to proceed at full speed: 1 on the device,
    less for an exchange that mostly waits for the wire, 0 for a copy engine. `beside`, where it was measured: the
    task's seconds while something else computes all the time, and the seconds of computing power it then takes.
    `queued`, where it was measured: its seconds among as many exchanges as are worked on at a time, over their number,
    while nothing computes and while something does, and the computing power it then takes. `blocking`: no exchange
    starts before it has ended. `wire_s`: the part of the work that a rested line may save. The schedule fills in start,
    end, `saved_s` (what a rested line did save) and `released_by`, the position of the task whose end let this one
    start (-1: the first).
    """

    stage: Stage
    name: str
    resource: Resource
    work_s: float
    demand: float
    after: tuple[int, ...] = ()
    lane: int = -1
    beside: tuple[float, ...] | None = None
    queued: tuple[float, ...] | None = None
    blocking: bool = False
    wire_s: float = 0.0
    start_s: float = field(default=0.0)
    end_s: float = field(default=0.0)
    saved_s: float = field(default=0.0)
    released_by: int = field(default=-1)

    @property
    def seconds(self) -> float:
        """Return how long the task took, which contention may have made longer than its work."""
        return self.end_s - self.start_s
