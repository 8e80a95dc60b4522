"""Device or host: of a plan's gathered segments, those that the host compresses with a shorter step."""

from collections.abc import Iterator
from dataclasses import replace

from ssfx.collectives import Reducer, collectives
from ssfx.compressors import build
from ssfx.core.errors import ConfigError
from ssfx.planning.plan import Plan, Segment
from ssfx.schemes.search.guarded import TIE, Priced
from ssfx.simulator.pricing.timeline import StepPrices

TRIED = 12
"""How many of the largest segments are tried, one after the other."""
MOST_TENSORS = 1500
"""Larger models are left as they are: every trial prices the whole plan."""

Place = tuple[int, int, int]
"""Bucket, lane and segment."""


def with_host(chosen: Priced, known: StepPrices) -> Priced:
    """Return the plan with those segments on the host that make the step shorter there, tried from the largest on."""
    plan, price_s, moved = chosen.plan, chosen.price_s, 0
    for place in sorted(_movable(plan), key=lambda at: (-plan.numel(_at(plan, at)), at))[:TRIED]:
        tried = _moved(plan, place)
        try:
            tried_s = known.total_s(tried)
        except ConfigError:  # a compressor without times there
            break
        if tried_s < price_s * (1 - TIE):
            plan, price_s, moved = tried, tried_s, moved + 1
    label = f"{chosen.label}, {moved} tensors compressed on the host" if moved else chosen.label
    return Priced(label, plan, price_s)


def may_move(plan: Plan) -> bool:
    """Return whether anything of a plan may move to the host, and the plan is small enough for it to be tried."""
    return len(plan.tensors) <= MOST_TENSORS and plan.world_size > 1 and any(_movable(plan))


def _movable(plan: Plan) -> Iterator[Place]:
    """Yield the places of segments on the device whose message is a gather."""
    for (b, k), lane in plan.lanes():
        collective = collectives.build(lane.collective)
        if collective.additive_only or isinstance(collective, Reducer):
            continue
        for s, segment in enumerate(lane.segments):
            if segment.compressor and segment.placement == "device" and build(segment.compressor).rounds == 1:
                yield b, k, s


def _at(plan: Plan, place: Place) -> Segment:
    bucket, lane, segment = place
    return plan.buckets[bucket].lanes[lane].segments[segment]


def _moved(plan: Plan, place: Place) -> Plan:
    b, k, s = place
    lane = plan.buckets[b].lanes[k]
    segments = tuple(replace(one, placement="host") if i == s else one for i, one in enumerate(lane.segments))
    lanes = tuple(replace(one, segments=segments) if i == k else one for i, one in enumerate(plan.buckets[b].lanes))
    buckets = tuple(replace(one, lanes=lanes) if i == b else one for i, one in enumerate(plan.buckets))
    return replace(plan, buckets=buckets)
