"""CLT-k: the ranks take turns in choosing the positions at which everybody's values are added."""

from __future__ import annotations

from ssfx.planning.costs import Costs
from ssfx.planning.plan import Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.base import scheme
from ssfx.schemes.search.whole_model import JointOptions, joint_plan


@scheme(
    "cltk",
    summary="one rank's top-k positions in turn, everybody's values there in an all-reduce: no build-up",
    source="Chen et al. 2020 (ScaleCom); D-38",
    defaults=JointOptions(compressor="cltk"),
    fusion_unit="model",
    collectives=("all_reduce",),
    compressors="cltk",
)
def plan_cltk(profile: Profile, costs: Costs, options: JointOptions) -> Plan:
    """Return the plan; memory=low_pass gives ScaleCom's filtered residuals."""
    return joint_plan("cltk", profile, costs, options, "all_reduce")
