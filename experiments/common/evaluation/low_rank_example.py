"""Four matrices on a made-up cluster: steps of S-SGD, Power-SGD and ACP-SGD from plans given bucket by bucket."""

from dataclasses import replace
from functools import cache

from ssfx.core.origin import Origin
from ssfx.perf_model.timing_model import TimingModel
from ssfx.planning.costs import CompressorTimes, Curve, ring_exchange
from ssfx.planning.plan import Bucket, Lane, Plan, Segment, TensorSpec, launch_in_order
from ssfx.planning.profile import Profile
from ssfx.simulator import Simulated, simulate

ORIGIN = Origin("nominal", note="invented example")
WORLD_SIZE = 4
TENSORS = tuple(TensorSpec(str(number), (512, 512)) for number in (4, 3, 2, 1))
BACKWARD_S = (1.2e-3, 1.2e-3, 1.2e-3, 1.2e-3)
ENCODE_S = {"powersgd": 0.5e-3, "acpsgd": 0.3e-3}
"""Of one matrix: two products and a basis, and one product and a basis."""
LATENCY_S, S_PER_BYTE = 0.06e-3, 1.2e-9
NAMES = tuple(spec.name for spec in TENSORS)


def profile() -> Profile:
    """Return the four matrices with their backward times."""
    return Profile("example", TENSORS, BACKWARD_S, 0.0, ORIGIN)


@cache
def system() -> TimingModel:
    """Return the made-up cluster."""
    work = TENSORS[0].numel * 4
    times = {
        name: CompressorTimes(Curve.affine(0.0, one / work), Curve.affine(0.0, one / work), Curve.zero(), ORIGIN)
        for name, one in ENCODE_S.items()
    }
    exchange = ring_exchange(WORLD_SIZE, LATENCY_S, S_PER_BYTE)
    return TimingModel("example", WORLD_SIZE, times, exchange, ORIGIN, style="per_call")


def plan(groups: tuple[tuple[str, ...], ...], compressor: str | None, *, overlap: bool = True) -> Plan:
    """Return the plan that exchanges these groups of matrices by all-reduces."""
    buckets = tuple(Bucket((Lane("all_reduce", (Segment(group, compressor),)),)) for group in groups)
    made = Plan("given", WORLD_SIZE, TENSORS, buckets, launch_in_order(buckets, TENSORS))
    return replace(made, overlap=overlap)


def step(groups: tuple[tuple[str, ...], ...], compressor: str | None = None, *, overlap: bool = True) -> Simulated:
    """Return one simulated step of such a plan."""
    return simulate(plan(groups, compressor, overlap=overlap), profile(), system())


EACH = tuple((name,) for name in NAMES)
TOGETHER = (NAMES,)
