"""The methods of a plan, as rows keep them: quality and trust follow from them, long after the plan is gone."""

from collections.abc import Iterable, Sequence
from typing import Any

from ssfx.planning.plan import Bucket, Lane, Plan, Segment, TensorSpec


def methods_of(plan: Plan) -> list[list[Any]]:
    """Return [collective, compressor or None, density, whether a call covers several tensors], each once, sorted."""
    found = {
        (lane.collective, one.compressor, one.density, one.compressor is not None and len(one.tensors) > 1)
        for _, lane in plan.lanes()
        for one in lane.segments
    }
    return [list(one) for one in sorted(found, key=str)]


def plan_of(methods: Iterable[Sequence[Any]]) -> Plan:
    """Return a plan of small tensors that sends by these methods and by no other."""
    lanes, tensors = [], []
    for number, (collective, compressor, density, joint) in enumerate(methods):
        names = tuple(f"{number}.{part}" for part in range(2 if joint else 1))
        tensors += [TensorSpec(name, (1,)) for name in names]
        lanes.append(Lane(collective, (Segment(names, compressor, density),)))
    order = tuple((0, lane) for lane in range(len(lanes)))
    return Plan("methods", 2, tuple(tensors), (Bucket(tuple(lanes)),), order)
