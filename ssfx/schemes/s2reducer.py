"""S2 Reducer: the largest blocks of the model, added up in a count sketch on the way."""

from __future__ import annotations

from dataclasses import dataclass

from ssfx.compressors import build
from ssfx.compressors.block_topk import BlockTopKOptions
from ssfx.core.errors import ConfigError
from ssfx.planning.costs import Costs
from ssfx.planning.plan import Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.base import scheme
from ssfx.schemes.search.whole_model import JointOptions, joint_plan


@dataclass(frozen=True, kw_only=True)
class S2ReducerOptions(JointOptions):
    """`rows` of the sketch, and the `ratio` of its buckets to the elements that one rank sends.

    The block width is the compressor's: block_topk(block=64).
    """

    compressor: str = "block_topk"
    density: float = 1 / 32
    rows: int = 1
    ratio: float = 0.5


@scheme(
    "s2reducer",
    summary="the model's largest blocks in an all-reduce of a count sketch and a bitmap: the sum is an estimate",
    source="Ge et al. 2022 (S2 Reducer), Algorithm 1; D-34",
    defaults=S2ReducerOptions(),
    fusion_unit="model",
    collectives=("s2_sketch", "all_reduce"),
    compressors="block_topk",
)
def plan_s2reducer(profile: Profile, costs: Costs, options: S2ReducerOptions) -> Plan:
    """Return the plan; blocks are cut from the joint vector, so one may hold the end of a tensor and the next's start.

    Where sketch and bitmap together are no smaller than the gradient, it is dense.
    """
    chosen = build(options.compressor).options
    block = chosen.block if isinstance(chosen, BlockTopKOptions) else BlockTopKOptions().block
    if isinstance(chosen, BlockTopKOptions) and chosen.agreed:
        raise ConfigError(
            f"scheme=s2reducer with compressor={options.compressor}: ranks that agree on blocks need no sketch; "
            f"use compressor=block_topk(block={block}), or scheme=fused_all compressor={options.compressor}"
        )
    return joint_plan("s2reducer", profile, costs, options, "s2_sketch", block=block)
