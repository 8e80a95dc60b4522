"""Hierarchical DDP: DDP's buckets in all-reduces that sum inside nodes first."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ssfx.collectives.hierarchical import node_size
from ssfx.planning.costs import Costs
from ssfx.planning.plan import Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.base import scheme
from ssfx.schemes.carrier import dense_carrier
from ssfx.schemes.ddp import DdpOptions, ddp_buckets
from ssfx.schemes.search.byte_groups import plan_per_dtype


@dataclass(frozen=True, kw_only=True)
class HierarchicalOptions(DdpOptions):
    """`ranks_per_node`: neighbours by rank share a node; 0 takes the largest number up to 8 that divides the ranks.

    Commands put the cluster's number of devices per node in its place where the cluster has several nodes.
    """

    ranks_per_node: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ranks_per_node < 0:
            raise ValueError(f"ranks_per_node must not be negative, got {self.ranks_per_node}")


@scheme(
    "hierarchical",
    summary="DDP's buckets, summed inside nodes, then across them",
    source="D-31",
    defaults=HierarchicalOptions(),
    fusion_unit="bucket",
    collectives=("hierarchical_all_reduce",),
    compressors="additive",
)
def plan_hierarchical(profile: Profile, costs: Costs, options: HierarchicalOptions) -> Plan:
    """Return the dense plan; the plan names the size of a node, also when the option leaves it open."""
    size = node_size(options.ranks_per_node, costs.world_size)
    carrier = dense_carrier("hierarchical", options.compressor)
    carrier = replace(carrier, collective=f"hierarchical_all_reduce(ranks_per_node={size})")
    first, cap = options.first_bucket_bytes, options.bucket_cap_bytes
    return plan_per_dtype(
        "hierarchical", profile, costs.world_size, lambda part: ddp_buckets(part, carrier, first=first, cap=cap)
    )
