"""WFBP: every tensor's all-reduce starts as soon as its gradient exists."""

from __future__ import annotations

from ssfx.planning.costs import Costs
from ssfx.planning.plan import Bucket, Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.base import DenseOptions, scheme
from ssfx.schemes.carrier import dense_carrier
from ssfx.schemes.search.byte_groups import plan_per_dtype, units


@scheme(
    "wfbp",
    summary="wait-free backpropagation: one dense all-reduce per tensor, overlapped with backward",
    source="Poseidon, Zhang et al. 2017; D-45",
    defaults=DenseOptions(),
    fusion_unit="tensor",
    collectives=("all_reduce",),
    compressors="additive",
)
def plan_wfbp(profile: Profile, costs: Costs, options: DenseOptions) -> Plan:
    """Return the dense plan with one message per tensor."""
    carrier = dense_carrier("wfbp", options.compressor)
    return plan_per_dtype(
        "wfbp",
        profile,
        costs.world_size,
        lambda part: [Bucket((carrier.lane([unit]),)) for unit in units(part.tensors)],
    )
