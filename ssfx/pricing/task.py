"""A task: one stage of the plan on one resource, as the simulator schedules it and as a trace shows it."""

from __future__ import annotations

from collections.abc import Sequence
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


@dataclass(frozen=True, slots=True)
class Queued:
    """Seconds of an exchange among others of its size, over their number; `beside`: while something computes, too.

    `waits_s` of `alone_s`, and `beside_waits_s` of `beside_s`, are not of the wire: threads wait for their turn.
    `cpu_s`: the computing power that the exchange takes.
    """

    alone_s: float
    beside_s: float
    cpu_s: float
    waits_s: float = 0.0
    beside_waits_s: float = 0.0

    def seconds(self, computing: bool, company: Sequence[Queued | None]) -> float:
        """Return what it takes while it is worked on together with others; `company`: all of them, itself too.

        Those whose threads wait do so at the same time. The wire is shared, with one that sends little for its time to
        that extent only: of a short message nothing is felt by a long one (docs/validation.md).
        """
        whole_s, waits_s = self._times(computing)
        if whole_s <= waits_s:
            return len(company) * whole_s
        on_wire = 1.0 - waits_s / whole_s
        sharing = 0.0
        for other in company:
            other_s, other_waits_s = other._times(computing) if other else (1.0, 0.0)
            sharing += min(1.0, (1.0 - other_waits_s / other_s) / on_wire) if other_s else 0.0
        return len(company) * waits_s + sharing * (whole_s - waits_s)

    def _times(self, computing: bool) -> tuple[float, float]:
        return (self.beside_s, self.beside_waits_s) if computing else (self.alone_s, self.waits_s)

    def __add__(self, other: Queued) -> Queued:
        return Queued(
            self.alone_s + other.alone_s, self.beside_s + other.beside_s, self.cpu_s + other.cpu_s,
            self.waits_s + other.waits_s, self.beside_waits_s + other.beside_waits_s,
        )  # fmt: skip


@dataclass(slots=True)
class Task:
    """`work_s` seconds of `resource` when nothing disturbs it, not before the tasks `after` (positions) have ended.

    `demand` is the share of the rank's computing power that the task needs to proceed at full speed: 1 on the device,
    less for an exchange that mostly waits for the wire, 0 for a copy engine. `beside`, where it was measured: the
    task's seconds while something else computes all the time, and the seconds of computing power it then takes.
    `queued`, where it was measured: what it takes among as many exchanges as are worked on at a time. `blocking`: no
    exchange starts before it has ended. `wire_s`: the part of the work that a rested line may save. The schedule fills
    in start, end, `saved_s` (what a rested line did save) and `released_by`, the position of the task whose end let
    this one start (-1: the first).
    """

    stage: Stage
    name: str
    resource: Resource
    work_s: float
    demand: float
    after: tuple[int, ...] = ()
    lane: int = -1
    beside: tuple[float, ...] | None = None
    queued: Queued | None = None
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
