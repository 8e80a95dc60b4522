"""SparDL: the whole model's largest elements by sparse reduce-scatter and all-gather, optionally in teams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ssfx.collectives.spar_reduce_scatter import SparReduceScatterOptions
from ssfx.planning.costs import Costs
from ssfx.planning.plan import Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.base import scheme
from ssfx.schemes.search.whole_model import JointOptions, joint_plan


@dataclass(frozen=True, kw_only=True)
class SparDlOptions(JointOptions):
    """`teams` of equal size that the ranks form, and `sag`, how their blocks come together ("auto": by their number).

    One team sends the fewest bytes; more teams send fewer messages.
    """

    teams: int = 1
    sag: Literal["auto", "recursive", "bruck"] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        SparReduceScatterOptions(self.teams, self.sag)


@scheme(
    "spardl",
    summary="sparse reduce-scatter and all-gather with selection at every hop; any number of ranks",
    source="SparDL, Zhao et al. 2024; D-33",
    defaults=SparDlOptions(),
    fusion_unit="model",
    collectives=("spar_reduce_scatter", "all_reduce"),
    compressors="topk",
)
def plan_spardl(profile: Profile, costs: Costs, options: SparDlOptions) -> Plan:
    """Return the plan; ConfigError when the ranks do not form that many equal teams."""
    return joint_plan("spardl", profile, costs, options, "spar_reduce_scatter")
