"""MiCRO: ranks select in parts of the model that do not overlap, so the sum has as many elements as one rank wants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ssfx.planning.costs import Costs
from ssfx.planning.plan import Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.base import scheme
from ssfx.schemes.search.whole_model import JointOptions, joint_plan


@dataclass(frozen=True, kw_only=True)
class MicroOptions(JointOptions):
    """Options of the collective micro, which describes them."""

    delta0: float = 0.0
    force_one: bool = True
    cap: Literal["share", "none"] = "share"


@scheme(
    "micro",
    summary="the model (or buckets) by MiCRO: disjoint selection above one threshold, dense sums at the indices",
    source="Yoon & Oh 2023 (MiCRO), Algorithm 1; D-23",
    defaults=MicroOptions(),
    fusion_unit="model",
    collectives=("micro", "all_reduce"),
    compressors="topk",
)
def plan_micro(profile: Profile, costs: Costs, options: MicroOptions) -> Plan:
    """Return the plan."""
    return joint_plan("micro", profile, costs, options, "micro")
