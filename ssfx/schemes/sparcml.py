"""SparCML: what a compressor selects from the whole model, summed exactly by collectives for sparse vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ssfx.planning.costs import Costs
from ssfx.planning.plan import Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.base import scheme
from ssfx.schemes.search.whole_model import JointOptions, joint_plan


@dataclass(frozen=True, kw_only=True)
class SparCmlOptions(JointOptions):
    """`algorithm`: "rd" doubles whole vectors (few messages), "split" gives each rank a part to add up (fewer bytes).

    "dsar" does that too and gathers the sums dense, for sums that fill the vector.
    """

    algorithm: Literal["rd", "split", "dsar"] = "rd"


@scheme(
    "sparcml",
    summary="exact sum of what ranks selected, in streams that turn dense when they have filled up",
    source="SparCML, Renggli et al. 2019; D-35",
    defaults=SparCmlOptions(),
    fusion_unit="model",
    collectives=("sparcml_rd", "sparcml_split", "sparcml_dsar", "all_reduce"),
    compressors="chunk_topm, dgc, gaussiank, hard_threshold, mstopk, redsync, sidco, topk",
)
def plan_sparcml(profile: Profile, costs: Costs, options: SparCmlOptions) -> Plan:
    """Return the plan; a group whose sum could take more bytes than an all-reduce is dense."""
    return joint_plan("sparcml", profile, costs, options, f"sparcml_{options.algorithm}")
