"""Ok-Topk: the k largest sums of the whole model, for traffic that does not grow with the world size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ssfx.planning.costs import Costs
from ssfx.planning.plan import Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.base import scheme
from ssfx.schemes.search.whole_model import JointOptions, joint_plan


@dataclass(frozen=True, kw_only=True)
class OktopkOptions(JointOptions):
    """Options of the collective ok_topk, which describes them."""

    tau_prime: int = 32
    tau: int = 64
    mode: Literal["canonical", "authors_vgg", "authors_lstm", "authors_bert"] = "canonical"
    balance: Literal["never", "auto", "always"] = "auto"


@scheme(
    "oktopk",
    summary="the model (or buckets) by Ok-Topk: regions sum what was selected, thresholds find about k sums",
    source="Li & Hoefler 2022 (Ok-Topk); D-32",
    defaults=OktopkOptions(),
    fusion_unit="model",
    collectives=("ok_topk", "all_reduce"),
    compressors="topk",
)
def plan_oktopk(profile: Profile, costs: Costs, options: OktopkOptions) -> Plan:
    """Return the plan; the dense warm-up of the authors (128 or 512 iterations) is not part of it."""
    return joint_plan("oktopk", profile, costs, options, "ok_topk")
