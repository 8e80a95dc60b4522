"""gTop-k: a tree of merges leaves k sums of the whole model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ssfx.planning.costs import Costs
from ssfx.planning.plan import Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.base import scheme
from ssfx.schemes.search.whole_model import JointOptions, joint_plan


@dataclass(frozen=True, kw_only=True)
class GTopkOptions(JointOptions):
    """Option of the collective gtopk, which describes it."""

    residual: Literal["conserving", "released"] = "conserving"


@scheme(
    "gtopk",
    summary="the model (or buckets) by gTop-k: lists are merged in pairs and cut to k, then broadcast",
    source="Shi et al. 2019 (gTop-k); D-37",
    defaults=GTopkOptions(),
    fusion_unit="model",
    collectives=("gtopk", "all_reduce"),
    compressors="topk",
)
def plan_gtopk(profile: Profile, costs: Costs, options: GTopkOptions) -> Plan:
    """Return the plan."""
    return joint_plan("gtopk", profile, costs, options, "gtopk")
