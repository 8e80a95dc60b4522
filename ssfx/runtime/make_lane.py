"""Which kind of lane carries a lane of the plan: dense, sum, gather or reduce."""

import torch

from ssfx.collectives import Reducer, collectives
from ssfx.collectives.comm import Comm
from ssfx.compressors import build
from ssfx.compressors.memories import Memory, memories
from ssfx.planning.plan import Lane, Plan
from ssfx.runtime.gather_lane import GatherLane, VariableGatherLane
from ssfx.runtime.lane import LaneExecutor
from ssfx.runtime.reduce_lane import QuantizedReduceLane, ReduceLane, SelectingReduceLane
from ssfx.runtime.store import Store
from ssfx.runtime.sum_lane import DenseLane, SumLane


def make_lane(
    lane: Lane, plan: Plan, comm: Comm, device: torch.device, store: Store, memory: Memory | None, step: int = 0
) -> LaneExecutor:
    """Return the executor of a lane, by what its collective does with messages; dense if nothing is compressed.

    A gather carries dense tensors as part of its messages, also where nothing else is in them.
    """
    collective = collectives.build(lane.collective)
    if collective.additive_only and all(segment.dense for segment in lane.segments):
        return DenseLane(lane, plan, comm, device, store, memory)
    assert memory is not None
    if isinstance(collective, Reducer):
        selecting = QuantizedReduceLane if collective.quantizes else SelectingReduceLane
        reduce = selecting if collective.selects else ReduceLane
        return reduce(lane, plan, comm, device, store, memory, collective, step)
    kind = SumLane if collective.additive_only else VariableGatherLane if collective.variable else GatherLane
    return kind(lane, plan, comm, device, store, lane_memory(lane, memory), memory, step)


def lane_memory(lane: Lane, memory: Memory) -> Memory:
    """Return the memory of a lane: none where its compressor leaves nothing out or its error must not be fed back.

    A plan of several compressors has lanes of both kinds; a memory without feedback suits all of them.
    """
    specs = {segment.compressor for segment in lane.segments if segment.compressor is not None}
    if memory.feedback and any(build(spec).lossless or not build(spec).error_feedback for spec in specs):
        return memories.build("none")
    return memory
