"""What the gradient of each tensor completes when it arrives: dense segments, compressor calls, whole messages."""

from __future__ import annotations

from dataclasses import dataclass, field

from ssfx.planning.plan import Plan, Segment


@dataclass(slots=True)
class Arrival:
    """What is complete with one gradient. `filled`: it is copied into a dense message itself. `issued`: messages.

    calls: the segments of one compressor call each.
    """

    filled: bool = False
    dense: list[Segment] = field(default_factory=list)
    calls: list[list[Segment]] = field(default_factory=list)
    issued: int = 0


def arrivals(plan: Plan, by_lane: bool) -> dict[str, Arrival]:
    """Return the arrival of every tensor.

    by_lane: one call takes all device segments of a lane, when the last of them is there; else it takes one segment.
    """
    found = {spec.name: Arrival() for spec in plan.tensors}

    def last(names: tuple[str, ...]) -> Arrival:
        return found[max(names, key=lambda name: plan.order[name])]

    for bucket in plan.buckets:
        for lane in bucket.lanes:
            last(lane.tensors).issued += 1
            together = []
            for segment in lane.segments:
                if not plan.numel(segment):
                    continue
                if segment.dense:
                    last(segment.tensors).dense.append(segment)
                    for name in segment.tensors:
                        found[name].filled = True
                elif segment.placement == "device" and by_lane:
                    together.append(segment)
                else:
                    last(segment.tensors).calls.append([segment])
            if together:
                last(tuple(name for segment in together for name in segment.tensors)).calls.append(together)
    return found
