"""The example of SSFusion's Figs. 7, 8 and 10: seven tensors in two buffers, planned by the planner of the scheme."""

from __future__ import annotations

from experiments.common.figures.example import COMPRESSOR, Example
from ssfx.planning.plan import Plan
from ssfx.schemes.carrier import Carrier
from ssfx.schemes.search.ssfusion_buffers import BufferPlanner, Knobs
from ssfx.schemes.ssfusion import SsfusionOptions

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


def planned(variant: str, example: Example = EXAMPLE) -> Plan:
    """Return the plan of a variant of SSFusion: naive, or o and i in any order."""
    letters = "" if variant == "naive" else variant
    options = SsfusionOptions(
        compressor=COMPRESSOR, density=example.density, offload="o" in letters, interleave="i" in letters
    )
    carrier = Carrier(COMPRESSOR, example.density, "all_gather")
    buckets = GivenBuffers(example.profile, example.costs, carrier, options, Knobs()).buckets()
    return example.plan(*buckets, scheme=f"ssfusion_{variant}")


def per_tensor(host: bool = False, example: Example = EXAMPLE) -> Plan:
    """Return the plan that compresses every tensor on its own, on the host if asked for."""
    names = list(example.tensors)
    groups = [[(names[i],) for i in at] for at in BUFFERS]
    return example.plan(*(example.gathered(*group, host=names if host else ()) for group in groups))


def dense_tensors(plan: Plan) -> list[set[str]]:
    """Return, bucket by bucket, the tensors that stay dense."""
    return [
        {name for lane in bucket.lanes for one in lane.segments if one.dense for name in one.tensors}
        for bucket in plan.buckets
    ]
