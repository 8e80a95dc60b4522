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


class LanePrices:
    """Prices of the messages of many plans, for one profile, network and kind of execution.

    The same lane is found by its identity, which is quick; an equal one by its value.
    """

    def __init__(self) -> None:
        self._same: dict[int, tuple[Lane, LanePrice]] = {}  # with the lane, so that its identity stays its own
        self._equal: dict[Lane, LanePrice] = {}

    def of(self, lane: Lane, made: Callable[[], LanePrice]) -> LanePrice:
        """Return the price of `lane`; `made` works it out where no equal one is known."""
        found = self._same.get(id(lane))
        if found is not None:
            return found[1]
        price = self._equal.get(lane)
        if price is None:
            price = self._equal[lane] = made()
        self._same[id(lane)] = lane, price
        return price


def lane_price(
    plan: Plan, lane: Lane, prices: Prices, by_lane: bool, call_s: Callable[[list[Segment]], float]
) -> LanePrice:
    """Return the price of one lane of `plan`; `call_s` gives the seconds of one compressor call, see lane_arrivals."""
    rounds = lane_rounds(plan, lane)
    summed = sum(len(segment.tensors) for segment in lane.segments if segment.compressor)
    return LanePrice(
        arrivals=lane_arrivals(plan, lane, by_lane, call_s),
        charges=tuple(prices.charges(lane)) if plan.numel(lane) else (),
        name=f"{lane.collective} {sum(load.nbytes for load in rounds)} B",
        blocking=collectives.build(lane.collective).blocking or len(rounds) > 1,
        decode_s=prices.decode_s(lane),
        summed=summed if prices.sums_pairs(lane) else 0,
    )
