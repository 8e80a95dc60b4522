"""Bytes on the wire: what a plan's segments and lanes contribute per rank, known before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from ssfx.collectives import Load, Traffic, collectives
from ssfx.compressors import Layout, build
from ssfx.core.lazy import numpy as np
from ssfx.planning.plan import Lane, Plan, Segment
from ssfx.wire.payload import VALUE_BYTES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


@lru_cache(maxsize=2**17)  # planners ask for the sizes of all ranges of tensors, and for the same ones again and again
def payload_layout(compressor: str | None, numel: int, density: float, dtype: str = "float32") -> Layout:
    """Return the wire layout of `numel` elements; without a compressor they travel as values of their own dtype.

    No elements take no bytes with any compressor.
    """
    if numel == 0:
        return Layout()
    if compressor is None:
        return Layout(values=numel, value_dtype=dtype)
    return build(compressor).layout(numel, density)


@lru_cache(maxsize=2**17)
def payload_bytes(compressor: str | None, numel: int, density: float, dtype: str = "float32") -> int:
    """Return the bytes of `payload_layout`."""
    return payload_layout(compressor, numel, density, dtype).nbytes


def payload_bytes_many(compressor: str, numel: Array, density: float) -> Array:
    """Return `payload_bytes` of an array of sizes."""
    one = build(compressor)
    if one.in_arrays:
        found: Array = cast("Any", one.layout)(numel, density).nbytes
        return np.where(numel > 0, found, 0.0)
    sizes, inverse = np.unique(numel, return_inverse=True)
    return np.array([payload_bytes(compressor, int(size), density) for size in sizes.tolist()], dtype=float)[inverse]


def segment_layout(plan: Plan, segment: Segment) -> Layout:
    """Return the wire layout of a segment."""
    specs = [plan.by_name[name] for name in segment.tensors]
    numel = sum(spec.numel for spec in specs)
    if segment.compressor is None or numel == 0:
        return payload_layout(None, numel, 1.0, specs[0].dtype)
    return _layout_of(segment.compressor, tuple(spec.shape for spec in specs), segment.density)


@lru_cache(maxsize=2**14)  # a search prices many plans of the same tensors
def _layout_of(compressor: str, shapes: tuple[tuple[int, ...], ...], density: float) -> Layout:
    return build(compressor).layout_of(shapes, density)


def segment_bytes(plan: Plan, segment: Segment) -> int:
    """Return the bytes one rank contributes for `segment`."""
    return segment_layout(plan, segment).nbytes


def lane_bytes(plan: Plan, lane: Lane) -> int:
    """Return the bytes one rank contributes to the lane's collective."""
    return sum(segment_bytes(plan, segment) for segment in lane.segments)


def lane_load(plan: Plan, lane: Lane) -> Load:
    """Return what one rank brings to the lane's collective: elements, bytes and elements kept."""
    return _load(plan, lane, [segment_layout(plan, segment) for segment in lane.segments])


def lane_rounds(plan: Plan, lane: Lane) -> tuple[Load, ...]:
    """Return the load of each exchange of the lane: one, or two for compressors that agree on something first."""
    layouts = [segment_layout(plan, segment) for segment in lane.segments]
    load = _load(plan, lane, layouts)
    first_bytes = sum(4 * layout.first for layout in layouts)
    if not first_bytes:
        return (load,)
    return replace(load, nbytes=first_bytes), replace(load, nbytes=load.nbytes - first_bytes)


_known: list[tuple[Plan, list[tuple[Lane, int, tuple[Load, ...]]]]] = []
_MOST_KNOWN = 4


def plan_rounds(plan: Plan) -> list[tuple[Lane, int, tuple[Load, ...]]]:
    """Return every launched lane with its bytes and the loads of its exchanges; of the latest plans they are kept."""
    for one, found in _known:
        if one is plan:
            return found
    found = [(lane, lane_bytes(plan, lane), lane_rounds(plan, lane)) for _, lane in plan.lanes()]
    _known.append((plan, found))
    del _known[:-_MOST_KNOWN]
    return found


def _load(plan: Plan, lane: Lane, layouts: Sequence[Layout]) -> Load:
    numel = [plan.numel(segment) for segment in lane.segments]
    kept = sum(
        min(n, layout.values or layout.packed) if layout.selected else n
        for n, layout in zip(numel, layouts, strict=True)
    )
    nbytes = sum(layout.nbytes for layout in layouts)
    return Load(sum(numel), nbytes - _unused_bytes(plan, lane, layouts[0]), kept, plan.world_size)


def _unused_bytes(plan: Plan, lane: Lane, layout: Layout) -> int:
    """Return the bytes that a message of changing length leaves unused, as the mean over its cycle."""
    segment = lane.segments[0]
    if len(lane.segments) > 1 or segment.compressor is None:
        return 0
    shapes = [plan.by_name[name].shape for name in segment.tensors]
    used = build(segment.compressor).cycle(shapes)
    return VALUE_BYTES[layout.value_dtype] * (layout.values - sum(used) // len(used)) if used else 0


def plan_traffic(plan: Plan) -> Traffic:
    """Return the messages and bytes that one rank sends in one step if every rank's load is the planned one."""
    total = Traffic(0, 0)
    for _, lane in plan.lanes():
        collective = collectives.build(lane.collective)
        for load in lane_rounds(plan, lane):
            total += collective.traffic(load)
    return total


def plan_bytes(plan: Plan) -> int:
    """Return the bytes one rank contributes in one step, over all launched lanes."""
    return sum(lane_bytes(plan, lane) for _, lane in plan.lanes())
