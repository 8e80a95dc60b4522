"""A task: one stage of the plan on one resource, as the simulator schedules it and as a trace shows it."""

from dataclasses import dataclass, field
from typing import Literal

Stage = Literal["forward", "backward", "compress", "to_host", "from_host", "exchange", "decompress", "step", "other"]
Resource = Literal[
    "device", "host", "copy_out", "copy_in", "network", "replicas", "reduce_stream", "replica_stream", "gather_stream"
]

STAGES: tuple[Stage, ...] = (
    "forward",
    "backward",
    "compress",
    "to_host",
    "from_host",
    "exchange",
    "decompress",
    "step",
    "other",
)
RESOURCES: tuple[Resource, ...] = (
    "device",
    "host",
    "copy_out",
    "copy_in",
    "network",
    "replicas",
    "reduce_stream",
    "replica_stream",
    "gather_stream",
)
"""Each starts its tasks in the order in which they were added to it; all but the network do one at a time. The last
four are of sharded models: links between replicas that shards do not use, and the device's streams in which sums
over shards, over replicas and weights are compressed and decoded, beside forward and backward."""


@dataclass(slots=True)
class Task:
    """Work of one stage; the schedule fills in the last four fields."""

    stage: Stage
    name: str
    """What a trace calls it."""
    resource: Resource
    work_s: float
    """Seconds that it takes when nothing disturbs it."""
    demand: float
    """Share of the rank's computing power that it needs to go at full speed: 1 on the device, less for an exchange that
    mostly waits for the wire, 0 for a copy engine."""
    after: tuple[int, ...] = ()
    """Positions of the tasks that must have ended before."""
    lane: int = -1
    """Position of its lane in launch order; -1 for tasks that belong to none."""
    under_compute: tuple[float, ...] | None = None
    """Of an exchange, where it was measured: its seconds while something else computes all the time, and the seconds of
    computing power that it then takes."""
    blocking: bool = False
    """Whether no exchange starts before it has ended."""
    wire_s: float = 0.0
    """The part of `work_s` that is on the wire: what a rested line may save, and what exchanges share."""
    start_s: float = field(default=0.0)
    end_s: float = field(default=0.0)
    saved_s: float = field(default=0.0)
    """What a rested line did save."""
    released_by: int = field(default=-1)
    """Position of the task whose end let this one start; -1: the first."""

    @property
    def seconds(self) -> float:
        """Return how long the task took, which contention may have made longer than its work."""
        return self.end_s - self.start_s
