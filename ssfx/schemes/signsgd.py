"""SignSGD with majority vote: one bit per element, gathered bucket by bucket."""

from __future__ import annotations

from dataclasses import dataclass

from ssfx.compressors import build
from ssfx.core.errors import ConfigError
from ssfx.planning.costs import Costs
from ssfx.planning.plan import Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.base import CompressOptions, scheme
from ssfx.schemes.carrier import Carrier, dense_carrier
from ssfx.schemes.ddp import ddp_buckets
from ssfx.schemes.search.byte_groups import plan_per_dtype


@dataclass(frozen=True, kw_only=True)
class SignSGDSchemeOptions(CompressOptions):
    """No options of its own."""

    compressor: str = "signsgd"


@scheme(
    "signsgd",
    summary="one bit per element in an all-gather per bucket; every element moves with the majority",
    source="Bernstein et al. 2019; D-24",
    defaults=SignSGDSchemeOptions(),
    fusion_unit="bucket",
    collectives=("all_gather", "all_reduce"),
    compressors="signsgd",
)
def plan_signsgd(profile: Profile, costs: Costs, options: SignSGDSchemeOptions) -> Plan:
    """Return the plan with DDP's buckets; from 64 ranks on, gathered bits outweigh an all-reduce of gradients.

    It votes all the same there, because an average would be another algorithm. One rank alone has nobody to vote with
    and keeps its gradient.
    """
    if build(options.compressor).name != "signsgd":
        raise ConfigError(
            f"scheme=signsgd with compressor={options.compressor}: it takes signsgd only; drop the compressor, or "
            f"choose scheme=fused_all compressor={options.compressor}"
        )
    alone = costs.world_size == 1
    carrier = dense_carrier("signsgd") if alone else Carrier(options.compressor, 1.0, "all_gather")
    return plan_per_dtype("signsgd", profile, costs.world_size, lambda part: ddp_buckets(part, carrier))
