"""Bytes on the wire: what a plan's segments and lanes contribute per rank, known before anything runs."""

from __future__ import annotations

from ssfx.compressors import Layout, build
from ssfx.plan import Lane, Plan, Segment


def segment_layout(segment: Segment, numel: int, dtype: str = "float32") -> Layout:
    """Return the wire layout of a segment of `numel` elements; dense segments travel as values of their own dtype."""
    if segment.compressor is None:
        return Layout(values=numel, value_dtype=dtype)
    return build(segment.compressor).layout(numel, segment.density)


def segment_bytes(plan: Plan, segment: Segment) -> int:
    """Return the bytes one rank contributes for `segment`."""
    dtype = plan.by_name[segment.tensors[0]].dtype
    return segment_layout(segment, plan.numel(segment), dtype).nbytes


def lane_bytes(plan: Plan, lane: Lane) -> int:
    """Return the bytes one rank contributes to the lane's collective."""
    return sum(segment_bytes(plan, segment) for segment in lane.segments)


def plan_bytes(plan: Plan) -> int:
    """Return the bytes one rank contributes in one step, over all launched lanes."""
    return sum(lane_bytes(plan, lane) for _, lane in plan.lanes())
