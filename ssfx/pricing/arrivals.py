"""What the gradient of each tensor completes when it arrives: dense segments, compressor calls, whole messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ssfx.planning.plan import Lane, Plan, Segment


@dataclass(slots=True)
class Arrival:
    """What is complete with one gradient. `filled`: it is copied into a dense message itself. `issued`: messages.

    calls: the segments of one compressor call each, with its seconds.
    """

    filled: bool = False
    dense: list[Segment] = field(default_factory=list)
    calls: list[tuple[list[Segment], float]] = field(default_factory=list)
    issued: int = 0

    def with_(self, other: Arrival) -> Arrival:
        """Return what both complete."""
        return Arrival(
            self.filled or other.filled, self.dense + other.dense, self.calls + other.calls, self.issued + other.issued
        )


def lane_arrivals(
    plan: Plan, lane: Lane, by_lane: bool, call_s: Callable[[list[Segment]], float]
) -> dict[str, Arrival]:
    """Return what gradients complete of one lane, by the names of the tensors that complete something.

    by_lane: one call takes all device segments of a lane, when the last of them is there; else it takes one segment.
    call_s: the seconds of a call for some segments.
    """
    found: dict[str, Arrival] = {}

    def at(name: str) -> Arrival:
        return found.setdefault(name, Arrival())

    def last(names: tuple[str, ...]) -> str:
        return names[0] if len(names) == 1 else max(names, key=plan.order.__getitem__)

    at(last(lane.tensors)).issued += 1
    together = []
    for segment in lane.segments:
        if not plan.numel(segment):
            continue
        if segment.dense:
            at(last(segment.tensors)).dense.append(segment)
            for name in segment.tensors:
                at(name).filled = True
        elif segment.placement == "device" and by_lane:
            together.append(segment)
        else:
            at(last(segment.tensors)).calls.append(([segment], call_s([segment])))
    if together:
        at(last(tuple(name for segment in together for name in segment.tensors))).calls.append(
            (together, call_s(together))
        )
    return found


def arrivals(lanes: Iterable[Mapping[str, Arrival]]) -> dict[str, Arrival]:
    """Return the arrivals of all `lanes` together; a tensor may complete something of several."""
    found: dict[str, Arrival] = {}
    for lane in lanes:
        for name, own in lane.items():
            other = found.get(name)
            found[name] = own if other is None else other.with_(own)
    return found
