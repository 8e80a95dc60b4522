"""S-SGD: the plain baseline that communicates only after backward has ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ssfx.planning.costs import Costs
from ssfx.planning.plan import Bucket, Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.base import DenseOptions, scheme
from ssfx.schemes.carrier import dense_carrier
from ssfx.schemes.search.byte_groups import plan_per_dtype, units


@dataclass(frozen=True, kw_only=True)
class SsgdOptions(DenseOptions):
    """`variant` "fused" sends one message for all tensors, "per_tensor" one message for each."""

    variant: Literal["fused", "per_tensor"] = "fused"


@scheme(
    "ssgd",
    summary="dense all-reduce after backward, no overlap; one message, or one per tensor",
    source="ACP-SGD's naive baseline (variant=per_tensor); D-45",
    defaults=SsgdOptions(),
    fusion_unit="bucket",
    collectives=("all_reduce",),
    compressors="additive",
)
def plan_ssgd(profile: Profile, costs: Costs, options: SsgdOptions) -> Plan:
    """Return the dense plan in which no message starts before backward has ended."""
    carrier = dense_carrier("ssgd", options.compressor)

    def buckets(part: Profile) -> list[Bucket]:
        messages = units(part.tensors) if options.variant == "per_tensor" else [part.tensors]
        return [Bucket((carrier.lane([message]),)) for message in messages]

    return plan_per_dtype("ssgd", profile, costs.world_size, buckets, overlap=False)
