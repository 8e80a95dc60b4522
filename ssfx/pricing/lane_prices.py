"""What one message of a plan takes, apart from when; a search works it out once for all plans with that message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ssfx.collectives import collectives
from ssfx.planning.plan import Lane, Plan, Segment
from ssfx.pricing.arrivals import Arrival, lane_arrivals
from ssfx.pricing.message_sizes import lane_rounds
from ssfx.pricing.plan_prices import Charge, Prices


@dataclass(frozen=True, slots=True)
class LanePrice:
    """The parts of a message and their seconds."""

    lane: Lane
    """Kept, so that its identity stays its own."""
    arrivals: dict[str, Arrival]
    """What gradients complete of it, by tensor."""
    charges: tuple[Charge, ...]
    """The parts of its exchange."""
    name: str
    """What a trace calls the exchange."""
    blocking: bool
    """Whether no exchange starts before it has ended."""
    decode_s: float
    """Decoding what was received."""
    summed: int
    """Tensors that the runtime adds straight into the gradients."""


LanePrices = dict[int, LanePrice]
"""Prices by the identity of the lane, for one profile, network and kind of execution."""


def lane_price(
    plan: Plan, lane: Lane, prices: Prices, by_lane: bool, call_s: Callable[[list[Segment]], float]
) -> LanePrice:
    """Return the price of one lane of `plan`; `call_s` gives the seconds of one compressor call, see lane_arrivals."""
    rounds = lane_rounds(plan, lane)
    summed = sum(len(segment.tensors) for segment in lane.segments if segment.compressor)
    return LanePrice(
        lane=lane,
        arrivals=lane_arrivals(plan, lane, by_lane, call_s),
        charges=tuple(prices.charges(lane)) if plan.numel(lane) else (),
        name=f"{lane.collective} {sum(load.nbytes for load in rounds)} B",
        blocking=collectives.build(lane.collective).blocking or len(rounds) > 1,
        decode_s=prices.decode_s(lane),
        summed=summed if prices.sums_pairs(lane) else 0,
    )
