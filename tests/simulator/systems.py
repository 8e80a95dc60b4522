"""Systems for the simulator's tests: made from planning costs, so that F(plan) and the simulator can be compared."""

from dataclasses import replace

from ssfx.compressors import compressors
from ssfx.perf_model.timing_model import Contention, TimingModel
from ssfx.planning.costs import CompressorTimes, Costs, Curve


def system_of(costs: Costs, density: float, style: str = "per_call", occupancy: float = 0.0) -> TimingModel:
    """Return a system that charges what `costs` say: decoding over entries instead of over elements.

    Every compressor takes the same times, whatever its unit of work.
    """
    per_element = costs.world_size * density
    decode = costs.decode
    entries = Curve(tuple(size * per_element for size in decode.sizes), decode.seconds, decode.unbounded)
    codec = CompressorTimes(costs.encode, costs.host, entries, costs.origin)
    return TimingModel(
        "test",
        costs.world_size,
        dict.fromkeys(compressors.names(), codec),
        costs.exchange,
        costs.origin,
        contention=Contention(dict.fromkeys(costs.exchange, occupancy)),
        style=style,
    )


def with_contention(system: TimingModel, **changes: object) -> TimingModel:
    """Return the system with these fields of its contention changed."""
    return replace(system, contention=replace(system.contention, **changes))


def without_times(system: TimingModel, **changes: object) -> TimingModel:
    """Return the system with free compression."""
    free = CompressorTimes(Curve.zero(), Curve.zero(), Curve.zero(), system.origin)
    return replace(system, codecs=dict.fromkeys(system.codecs, free), **changes)
