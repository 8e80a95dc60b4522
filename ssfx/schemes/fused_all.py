"""Fused: one message, in which a chosen share of the tensors is compressed jointly."""

import math
from dataclasses import dataclass

from ssfx.planning.costs import Costs
from ssfx.planning.plan import Bucket, Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.base import CompressOptions, scheme
from ssfx.schemes.search.byte_groups import Group, joined, plan_per_dtype, units
from ssfx.schemes.transport import sparse_transport


@dataclass(frozen=True, kw_only=True)
class FusedAllOptions(CompressOptions):
    """`fusion_degree` is the percentage of tensors that are compressed jointly, counted from the output layer."""

    fusion_degree: float = 100.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.fusion_degree <= 100:
            raise ValueError(f"fusion_degree is a percentage in [0, 100], got {self.fusion_degree:g}")


@scheme(
    "fused_all",
    summary="one message for the whole model, all tensors (or fusion_degree percent of them) compressed jointly",
    source="SSFusion section III-A; D-46",
    defaults=FusedAllOptions(),
    fusion_unit="model",
    collectives=("all_gather", "all_reduce"),
)
def plan_fused_all(profile: Profile, costs: Costs, options: FusedAllOptions) -> Plan:
    """Return the plan with one bucket per dtype; joint selection may leave out whole tensors.

    The paper does not define a degree below 100: here the first ceil(degree * L / 100) tensors in backward order form
    one compressor call, the others one each.
    """
    transport = sparse_transport(options, costs.world_size)

    def buckets(part: Profile) -> list[Bucket]:
        tensors = units(part.tensors)
        fused = math.ceil(options.fusion_degree * len(tensors) / 100)
        together: list[Group] = [joined(tensors[:fused])] if fused else []
        return [Bucket((transport.lane([*together, *tensors[fused:]]),))]

    return plan_per_dtype("fused_all", profile, costs.world_size, buckets)
