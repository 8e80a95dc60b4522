"""Which executor a lane gets: dense, packed into one message, or reduced in several phases."""

from __future__ import annotations

import torch

from ssfx.collectives import Reducer, collectives
from ssfx.collectives.comm import Comm
from ssfx.memories import Memory
from ssfx.planning.plan import Lane, Plan
from ssfx.runtime.lane import DenseLane, LaneExecutor
from ssfx.runtime.packed import PackedLane
from ssfx.runtime.reduced import ReducedLane
from ssfx.runtime.store import Store


def make_lane(
    lane: Lane, plan: Plan, comm: Comm, device: torch.device, store: Store, memory: Memory | None
) -> LaneExecutor:
    """Return the executor of a lane: dense if none of its segments is compressed."""
    collective = collectives.build(lane.collective)
    if all(segment.dense for segment in lane.segments) and collective.additive_only:
        return DenseLane(lane, plan, comm, device, store, memory)
    assert memory is not None
    kind = ReducedLane if isinstance(collective, Reducer) else PackedLane
    return kind(lane, plan, comm, device, store, memory)
