"""OmniReduce: DDP's buckets without the blocks that are zero on every rank."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ssfx.collectives import collectives
from ssfx.planning.costs import Costs
from ssfx.planning.plan import Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.base import DenseOptions, scheme
from ssfx.schemes.carrier import dense_carrier
from ssfx.schemes.ddp import ddp_buckets
from ssfx.schemes.search.byte_groups import plan_per_dtype


@dataclass(frozen=True, kw_only=True)
class OmniReduceOptions(DenseOptions):
    """Blocks of `block` elements; `filled` is the share that is expected not to be zero on some rank.

    `filled` decides predicted times, nothing else.
    """

    block: int = 256
    filled: float = 1.0


@scheme(
    "omnireduce",
    summary="DDP's buckets, of which only blocks travel that are not zero on every rank",
    source="Fei et al. 2021 (OmniReduce); D-36",
    defaults=OmniReduceOptions(),
    fusion_unit="bucket",
    collectives=("block_all_reduce", "all_reduce"),
    compressors="additive",
)
def plan_omnireduce(profile: Profile, costs: Costs, options: OmniReduceOptions) -> Plan:
    """Return the dense plan; nothing is lost, and only gradients with runs of zeros gain anything."""
    blocks = collectives.canonical("block_all_reduce", {"block": options.block, "filled": options.filled})
    carrier = dense_carrier("omnireduce", options.compressor)
    if costs.world_size > 1:
        carrier = replace(carrier, collective=blocks)
    return plan_per_dtype("omnireduce", profile, costs.world_size, lambda part: ddp_buckets(part, carrier))
