"""Top-k: the classic sparse baseline, every rank gathers every rank's k largest elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ssfx.planning.costs import Costs
from ssfx.planning.plan import Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.base import scheme
from ssfx.schemes.search.whole_model import JointOptions, joint_plan


@dataclass(frozen=True, kw_only=True)
class TopkOptions(JointOptions):
    """`result` "selected": the sum of what ranks selected. "union": the dense sum wherever some rank selected.

    The latter gathers the indices only and all-reduces everybody's values there, as the baselines of MiCRO's code do.
    """

    result: Literal["selected", "union"] = "selected"


@scheme(
    "topk",
    summary="exact top-k of the whole model (or of buckets) in an all-gather of fixed size",
    source="Aji & Heafield 2017, Lin et al. 2018; D-30",
    defaults=TopkOptions(),
    fusion_unit="model",
    collectives=("all_gather", "union_all_reduce", "all_reduce"),
    compressors="topk",
)
def plan_topk(profile: Profile, costs: Costs, options: TopkOptions) -> Plan:
    """Return the plan; its traffic grows with the world size, so that from 1 / density ranks on it is dense."""
    collective = "all_gather" if options.result == "selected" else "union_all_reduce"
    return joint_plan("topk", profile, costs, options, collective)
