"""Which kind of message carries a lane of the plan: dense, summed, gathered or reduced."""

import torch

from ssfx.collectives import Reducer, collectives
from ssfx.collectives.comm import Comm
from ssfx.compressors import build
from ssfx.compressors.memories import Memory, memories
from ssfx.planning.plan import Lane, Plan
from ssfx.runtime.gathered_message import GatheredMessage, VariableGatheredMessage
from ssfx.runtime.message import Message
from ssfx.runtime.reduced_message import QuantizedReducedMessage, ReducedMessage, SelectingReducedMessage
from ssfx.runtime.store import Store
from ssfx.runtime.summed_message import DenseMessage, SummedMessage


def make_message(
    lane: Lane, plan: Plan, comm: Comm, device: torch.device, store: Store, memory: Memory | None, step: int = 0
) -> Message:
    """Return the message of a lane, by what its collective does with it; dense if nothing is compressed.

    A gather carries dense tensors as part of its messages, also where nothing else is in them.
    """
    collective = collectives.build(lane.collective)
    if collective.additive_only and all(segment.dense for segment in lane.segments):
        return DenseMessage(lane, plan, comm, device, store, memory)
    assert memory is not None
    if isinstance(collective, Reducer):
        selecting = QuantizedReducedMessage if collective.quantizes else SelectingReducedMessage
        reduce = selecting if collective.selects else ReducedMessage
        return reduce(lane, plan, comm, device, store, memory, collective, step)
    kind = (
        SummedMessage
        if collective.additive_only
        else VariableGatheredMessage
        if collective.variable
        else GatheredMessage
    )
    return kind(lane, plan, comm, device, store, message_memory(lane, memory), memory, step)


def message_memory(lane: Lane, memory: Memory) -> Memory:
    """Return the memory of a message: none where its compressor leaves nothing out or its error must not be fed back.

    A plan of several compressors has messages of both kinds; a memory without feedback suits all of them.
    """
    specs = {segment.compressor for segment in lane.segments if segment.compressor is not None}
    if memory.feedback and any(build(spec).lossless or not build(spec).error_feedback for spec in specs):
        return memories.build("none")
    return memory
