"""PowerSGD: low-rank factors of all matrices, in one message after backward or bucket by bucket during it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ssfx.planning.costs import Costs
from ssfx.planning.plan import Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.base import CompressOptions, scheme
from ssfx.schemes.search.whole_model import JointOptions, joint_plan


@dataclass(frozen=True, kw_only=True)
class PowerSGDOptions(CompressOptions):
    """`variant` "packed": the factors of the whole model in one message, after backward, as the paper's code does.

    "wfbp": one message for each of DDP's buckets, overlapped with backward, as PyTorch's hook does. The rank is the
    compressor's: powersgd(rank=4).
    """

    compressor: str = "powersgd"
    variant: Literal["packed", "wfbp"] = "packed"


@scheme(
    "powersgd",
    summary="rank-r factors of every matrix, two small all-reduces, for the model or per bucket",
    source="Vogels et al. 2019; PyTorch's powerSGD hook; D-26",
    defaults=PowerSGDOptions(),
    fusion_unit="model",
    collectives=("all_reduce",),
    compressors="powersgd",
)
def plan_powersgd(profile: Profile, costs: Costs, options: PowerSGDOptions) -> Plan:
    """Return the plan; tensors that are not worth factoring travel as they are, in the second message.

    A message none of whose tensors is worth factoring is dense.
    """
    grouping: Literal["all", "cap"] = "all" if options.variant == "packed" else "cap"
    joint = JointOptions(compressor=options.compressor, grouping=grouping)
    return joint_plan("powersgd", profile, costs, joint, "all_reduce")
