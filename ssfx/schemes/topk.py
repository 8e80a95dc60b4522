"""Top-k: the classic sparse baseline, every rank gathers every rank's k largest elements."""

from __future__ import annotations

from ssfx.costs import Costs
from ssfx.plan import Plan
from ssfx.profile import Profile
from ssfx.schemes.base import scheme
from ssfx.schemes.joint import JointOptions, joint_plan


@scheme(
    "topk",
    summary="exact top-k of the whole model (or of buckets) in an all-gather of fixed size",
    source="collectives spec 2.1; Aji & Heafield 2017, Lin et al. 2018",
    defaults=JointOptions(),
    fusion_unit="model",
    collectives=("all_gather", "all_reduce"),
    compressors="topk",
)
def plan_topk(profile: Profile, costs: Costs, options: JointOptions) -> Plan:
    """Return the plan; its traffic grows with the world size, so that from 1 / density ranks on it is dense."""
    return joint_plan("topk", profile, costs, options, "all_gather")
