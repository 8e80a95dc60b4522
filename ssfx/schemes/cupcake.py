"""Cupcake: contiguous groups, each compressed jointly, cut where the predicted step ends first.

The planner is a reconstruction: the authors' FindOptFusion is not public, and their released code makes groups of equal
counts (scheme equal_count). Source: D-49; Cupcake, MLSys 2023.
"""

from ssfx.planning.costs import Costs
from ssfx.planning.plan import Bucket, Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.base import scheme
from ssfx.schemes.search.byte_groups import plan_per_dtype
from ssfx.schemes.search.contiguous_groups import ProfiledOptions, group_curves, joint_buckets, with_prediction
from ssfx.schemes.search.exact_groups import best_fusion
from ssfx.schemes.transport import sparse_transport


@scheme(
    "cupcake",
    summary="the best contiguous groups, each compressed jointly (reconstructed planner)",
    source="Cupcake, MLSys 2023; D-49",
    defaults=ProfiledOptions(),
    fusion_unit="bucket",
    collectives=("all_gather", "all_reduce"),
    profiled=True,
)
def plan_cupcake(profile: Profile, costs: Costs, options: ProfiledOptions) -> Plan:
    """Return the plan that ends first of all with contiguous groups; its notes hold the predicted time.

    Exact up to fusion_search.MAX_CUTS tensors of one dtype. Density 1 gives the best fusion of dense messages, and an
    additive compressor the best fusion of its all-reduces. One rank alone makes one group.
    """
    transport = sparse_transport(options, costs.world_size)

    def buckets(part: Profile) -> list[Bucket]:
        best = best_fusion(part.ready_gap_s, part.numel, **group_curves(part, costs, transport))
        return joint_buckets(part, transport, best.groups)

    return with_prediction(plan_per_dtype("cupcake", profile, costs.world_size, buckets), profile, costs)
