"""The reference timeline F(plan): when a step's gradients are all exchanged, without contention.

Every model-driven planner is judged by this one function, so schemes are comparable. Source: D-42.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ssfx.collectives import Load, Phase, Reducer, collectives
from ssfx.planning.costs import Costs
from ssfx.planning.plan import Lane, Plan, Segment
from ssfx.planning.profile import Profile
from ssfx.pricing.message_sizes import lane_rounds


@dataclass(frozen=True, slots=True)
class LaneTime:
    """When one lane was ready, started and ended, in seconds from the start of backward."""

    ready_s: float
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """The outcome of `evaluate`: all times in seconds from the start of backward."""

    backward_end_s: float
    lanes: tuple[LaneTime, ...]
    decode_s: float
    total_s: float


def evaluate(plan: Plan, profile: Profile, costs: Costs) -> Timeline:
    """Return the timeline of `plan`; `profile` must list the plan's tensors in the plan's order.

    Three serial resources: the compute stream (backward and device encodes), one host worker, the network (first come,
    first served in launch order, a ready lane waits for earlier ones).
    """
    ready, gpu_s = _segment_ready(plan, profile, costs)
    net_s, decode_s, lanes = 0.0, 0.0, []
    for _, lane in plan.lanes():
        ready_s = max(ready[segment.tensors] for segment in lane.segments)
        if not plan.overlap:
            ready_s = max(ready_s, gpu_s)
        start_s = max(net_s, ready_s)
        lane_decode_s = decode_s_of(plan, lane, costs)
        net_s = start_s + sum(exchange_s(lane.collective, load, costs) for load in lane_rounds(plan, lane))
        if plan.decode == "comm_stream":
            net_s += lane_decode_s
        decode_s += lane_decode_s
        lanes.append(LaneTime(ready_s, start_s, net_s))
    total_s = max(gpu_s, net_s) + (decode_s if plan.decode == "end" else 0.0)
    return Timeline(gpu_s, tuple(lanes), decode_s, total_s)


def exchange_s(collective: str, load: Load, costs: Costs) -> float:
    """Return the seconds of one exchange: its own curve if it was calibrated as a whole, else the sum of its phases."""
    if load.world_size == 1 or not load.nbytes:
        return 0.0
    if collective in costs.exchange:
        return costs.exchange_s(collective, load.nbytes)
    total_s = 0.0
    for phase in collectives.build(collective).phases(load):
        compute = {"encode": costs.encode, "decode": costs.decode}.get(phase.primitive)
        total_s += compute(phase.size) if compute else costs.exchange_s(primitive_of(phase, costs.exchange), phase.size)
    return total_s


def primitive_of(phase: Phase, known: Collection[str]) -> str:
    """Return which of the `known` primitives a phase is charged as: inside nodes if there are other links there."""
    inside = f"{phase.primitive}_inside"
    return inside if phase.inside and inside in known else phase.primitive


def decode_s_of(plan: Plan, lane: Lane, costs: Costs) -> float:
    """Return the seconds of decoding a lane: the payloads of all ranks, or the one sum that most reducers return."""
    collective = collectives.build(lane.collective)
    share = 1 / plan.world_size if isinstance(collective, Reducer) and collective.decodes_once else 1.0
    return sum(costs.decode(plan.numel(s)) for s in lane.segments if not s.dense) * share


def _segment_ready(plan: Plan, profile: Profile, costs: Costs) -> tuple[dict[tuple[str, ...], float], float]:
    if [spec.name for spec in profile.tensors] != [spec.name for spec in plan.tensors]:
        raise ValueError("the profile and the plan list different tensors or another order")
    ends: dict[str, Segment] = {}
    for bucket in plan.buckets:
        for lane in bucket.lanes:
            ends.update(_ends(lane))
    ready: dict[tuple[str, ...], float] = {}
    gpu_s = host_s = 0.0
    for spec, gap_s in zip(profile.tensors, profile.ready_gap_s, strict=True):
        gpu_s += gap_s
        segment = ends.get(spec.name)
        if segment is None:
            continue
        numel = plan.numel(segment)
        if segment.dense:
            ready[segment.tensors] = gpu_s
        elif segment.placement == "host":
            host_s = max(gpu_s, host_s) + costs.host(numel)
            ready[segment.tensors] = host_s
        else:
            gpu_s += costs.encode(numel)
            ready[segment.tensors] = gpu_s
    return ready, gpu_s


def _ends(lane: Lane) -> dict[str, Segment]:
    return {segment.tensors[-1]: segment for segment in lane.segments}
