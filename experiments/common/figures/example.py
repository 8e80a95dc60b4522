"""Small examples for timelines: a few tensors, real plans of them, and one simulated step on an invented cluster.

The papers draw such timelines by hand. Here the plans come from the planners, or are given bucket by bucket where the
paper gives them so, and the times from the simulator; sizes and costs are invented so that all stages can be seen.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ssfx.core.origin import Origin
from ssfx.perf_model.timing_model import TimingModel
from ssfx.planning.costs import CompressorTimes, Costs, Curve, ring_exchange
from ssfx.planning.plan import Bucket, Lane, Placement, Plan, Segment, TensorSpec, launch_in_order
from ssfx.planning.profile import Profile
from ssfx.schemes.carrier import Carrier
from ssfx.schemes.search.ssfusion_buffers import BufferPlanner, Knobs
from ssfx.schemes.ssfusion import SsfusionOptions
from ssfx.simulator import Simulated, simulate

ORIGIN = Origin("nominal", note="invented example")
COMPRESSOR = "topk"


@dataclass(frozen=True)
class Example:
    """Tensors with their backward times, a network and a compressor: all that a plan and its timeline need.

    `tensors` maps names to elements in backward order; times are in milliseconds, per message, byte, call or element.
    """

    tensors: dict[str, int]
    backward_ms: tuple[float, ...]
    world_size: int = 4
    density: float = 0.1
    latency_ms: float = 0.05
    ms_per_megabyte: float = 1.0
    encode_ms: tuple[float, float] = (0.6, 1e-6)
    host_ms: tuple[float, float] = (1.2, 3e-6)

    @property
    def profile(self) -> Profile:
        """The tensors with their times; nothing but backward takes any."""
        specs = tuple(TensorSpec(name, (numel,)) for name, numel in self.tensors.items())
        return Profile("example", specs, tuple(1e-3 * gap for gap in self.backward_ms), 0.0, ORIGIN)

    @property
    def costs(self) -> Costs:
        """What planning needs; decoding is free."""
        encode, host = (Curve.affine(1e-3 * base, 1e-3 * slope) for base, slope in (self.encode_ms, self.host_ms))
        exchange = ring_exchange(self.world_size, 1e-3 * self.latency_ms, 1e-9 * self.ms_per_megabyte)
        return Costs(self.world_size, encode, host, Curve.zero(), exchange, ORIGIN)

    def plan(self, *buckets: Bucket, scheme: str = "given") -> Plan:
        """Return the plan of these buckets."""
        specs = self.profile.tensors
        return Plan(scheme, self.world_size, specs, buckets, launch_in_order(buckets, specs))

    def step(self, plan: Plan) -> Simulated:
        """Return one simulated step of a plan, executed as it is planned: one compressor call for each segment."""
        costs = self.costs
        times = CompressorTimes(costs.encode, costs.host, Curve.zero(), ORIGIN)
        system = TimingModel("example", self.world_size, {COMPRESSOR: times}, costs.exchange, ORIGIN, style="per_call")
        return simulate(plan, self.profile, system)

    def gathered(self, *groups: Sequence[str], place: Placement = "device") -> Bucket:
        """Return a bucket that is all-gathered: each group is compressed together."""
        segments = tuple(Segment(tuple(group), COMPRESSOR, self.density, placement=place) for group in groups)
        return Bucket((Lane("all_gather", segments),))


def reduced(*tensors: str) -> Bucket:
    """Return a bucket of dense tensors that is all-reduced."""
    return Bucket((Lane("all_reduce", tuple(Segment((name,)) for name in tensors)),))


EXAMPLE = Example(
    {"7": 12_000, "6": 900_000, "5": 24_000, "4": 60_000, "3": 6_000, "2": 500_000, "1": 15_000},
    (0.5, 0.9, 0.5, 0.6, 0.5, 0.7, 0.4), density=0.1, ms_per_megabyte=1.0, latency_ms=0.03, encode_ms=(0.45, 0.15e-6),
    host_ms=(0.6, 0.3e-6),
)  # fmt: skip
"""Sizes in the paper's order: in the first buffer 7 < 5 < 4 < 6, in the second 3 < 1 < 2."""
BUFFERS = (range(0, 4), range(4, 7))


class GivenBuffers(BufferPlanner):
    """The planner of SSFusion, with the buffers of the figure instead of those it would search for."""

    def _ranges(self) -> list[range]:
        return list(BUFFERS)


def planned(variant: str) -> Plan:
    """Return the plan for EXAMPLE of a variant of SSFusion: naive, or o and i in any order."""
    letters = "" if variant == "naive" else variant
    options = SsfusionOptions(
        compressor=COMPRESSOR, density=EXAMPLE.density, offload="o" in letters, interleave="i" in letters
    )
    carrier = Carrier(COMPRESSOR, EXAMPLE.density, "all_gather")
    buckets = GivenBuffers(EXAMPLE.profile, EXAMPLE.costs, carrier, options, Knobs()).buckets()
    return EXAMPLE.plan(*buckets, scheme=f"ssfusion_{variant}")


def per_tensor(place: Placement = "device") -> Plan:
    """Return the plan that compresses every tensor of EXAMPLE on its own."""
    names = list(EXAMPLE.tensors)
    groups = [[(names[i],) for i in at] for at in BUFFERS]
    return EXAMPLE.plan(*(EXAMPLE.gathered(*group, place=place) for group in groups))


def dense_tensors(plan: Plan) -> list[set[str]]:
    """Return, bucket by bucket, the tensors that stay dense."""
    return [
        {name for lane in bucket.lanes for one in lane.segments if one.dense for name in one.tensors}
        for bucket in plan.buckets
    ]
