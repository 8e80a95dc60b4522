"""DDP with 16-bit messages: what a cast of the gradients alone is worth, the row every compression has to beat."""

from __future__ import annotations

from dataclasses import replace

from ssfx.planning.costs import Costs
from ssfx.planning.plan import Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.base import scheme
from ssfx.schemes.ddp import DdpOptions, plan_ddp


@scheme(
    "ddp_fp16",
    summary="PyTorch DDP's buckets, cast to 16 bits for the all-reduce",
    source="PyTorch DDP communication hooks: fp16_compress_hook",
    defaults=DdpOptions(compressor="fp16"),
    fusion_unit="bucket",
    collectives=("all_reduce",),
    compressors="additive",
)
def plan_ddp_fp16(profile: Profile, costs: Costs, options: DdpOptions) -> Plan:
    """Return the plan of `ddp` with its gradients cast."""
    return replace(plan_ddp(profile, costs, options), scheme="ddp_fp16")
