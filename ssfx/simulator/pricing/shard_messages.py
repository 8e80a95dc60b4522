"""What travels between the shards of a model: messages and bytes of gathers of weights and of sums of gradients.

A sum is torch's reduce-scatter where all of it is dense, and a gather torch's all-gather. Else every rank sends every
other a row, laid out as the message of a lane: its chunk of a sum, or its shards of the weights.
"""

from ssfx.collectives.primitives import Traffic, traffic
from ssfx.planning.plan import ITEM_BYTES, Lane, Plan
from ssfx.planning.sharding import ShardedPlan
from ssfx.simulator.pricing.message_sizes import lane_bytes

_ALIGNED = 4  # typed views of a received row need it


def is_native(lane: Lane) -> bool:
    """Return whether a sum over shards or a gather of weights is torch's own."""
    return all(segment.dense for segment in lane.segments)


def row_bytes(plan: Plan, lane: Lane) -> int:
    """Return the bytes that a rank sends to each other one for a lane that is compressed."""
    return -(-lane_bytes(plan, lane) // _ALIGNED) * _ALIGNED


def handed_over(plan: Plan, lane: Lane) -> int:
    """Return the bytes that a rank brings to a sum over shards, its own chunk among them, or to a gather of weights."""
    rows = 1 if lane.collective == "all_gather" else plan.world_size
    return rows * (plan.numel(lane) * _item_bytes(plan, lane) if is_native(lane) else row_bytes(plan, lane))


def shard_traffic(plan: Plan, lane: Lane, rank: int = 0) -> Traffic:
    """Return what a rank sends for a sum over shards, or for a gather of weights."""
    whole = _item_bytes(plan, lane) if is_native(lane) else row_bytes(plan, lane)
    return traffic(lane.collective, handed_over(plan, lane), plan.world_size, rank, whole)


def _item_bytes(plan: Plan, lane: Lane) -> int:
    return ITEM_BYTES[plan.by_name[lane.tensors[0]].dtype]


def gathered_bytes(found: ShardedPlan) -> list[int]:
    """Return the bytes that a rank brings to one gather of each group's weights: its shards with their padding."""
    sharding = found.sharding
    if found.weights is None:
        return [unit.shard_numel(sharding.shards) * ITEM_BYTES[sharding.gather_dtype] for unit in found.units]
    sizes = [0] * len(found.units)
    for (bucket, _), lane in found.weights.lanes():
        sizes[found.of_weights[bucket]] += handed_over(found.weights, lane)
    return sizes
