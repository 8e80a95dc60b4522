"""Hard threshold: every rank gathers whatever every rank has above a constant, however much that is."""

from __future__ import annotations

from ssfx.planning.costs import Costs
from ssfx.planning.plan import Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.base import scheme
from ssfx.schemes.search.whole_model import JointOptions, joint_plan


@scheme(
    "hard_threshold",
    summary="all elements above a constant, jointly (or per bucket), in an all-gather of the sizes that ranks have",
    source="Strom 2015, Sahu et al. 2021; D-30",
    defaults=JointOptions(compressor="hard_threshold"),
    fusion_unit="model",
    collectives=("all_gather_v", "all_reduce"),
    compressors="hard_threshold",
)
def plan_hard_threshold(profile: Profile, costs: Costs, options: JointOptions) -> Plan:
    """Return the plan; the density sets the threshold by the compressor's rule unless it is given one."""
    return joint_plan("hard_threshold", profile, costs, options, "all_gather_v")
