"""Schemes that are one call: a row each for joint vectors by a collective, and the plain dense ones."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from ssfx.collectives import collectives
from ssfx.collectives.hierarchical import node_size
from ssfx.compressors import build
from ssfx.compressors.block_topk import BlockTopKOptions
from ssfx.core.errors import ConfigError
from ssfx.planning.costs import Costs
from ssfx.planning.plan import Bucket, Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.base import CompressOptions, DenseOptions, scheme
from ssfx.schemes.ddp import DdpOptions, ddp_buckets, plan_ddp
from ssfx.schemes.search.byte_groups import plan_per_dtype, units
from ssfx.schemes.search.whole_model import JointOptions, joint_plan
from ssfx.schemes.transport import Transport, dense_transport

# ---- options ----


@dataclass(frozen=True, kw_only=True)
class SparDlOptions(JointOptions):
    """`teams` of equal size that the ranks form. One team sends the fewest bytes; more teams send fewer messages."""

    teams: Annotated[int, 1] = 1


@dataclass(frozen=True, kw_only=True)
class S2ReducerOptions(JointOptions):
    """`ratio` of the sketch's buckets to the elements that one rank sends.

    The block width is the compressor's: block_topk(block=64).
    """

    compressor: str = "block_topk"
    density: float = 1 / 32
    ratio: float = 0.5


@dataclass(frozen=True, kw_only=True)
class SsgdOptions(DenseOptions):
    """`variant` "fused" sends one message for all tensors, "per_tensor" one message for each."""

    variant: Literal["fused", "per_tensor"] = "fused"


@dataclass(frozen=True, kw_only=True)
class OmniReduceOptions(DenseOptions):
    """`filled`: the share of blocks that is expected not to be zero on some rank; it decides predicted times alone."""

    filled: float = 1.0


@dataclass(frozen=True, kw_only=True)
class SignSGDSchemeOptions(CompressOptions):
    """No options of its own."""

    compressor: str = "signsgd"


@dataclass(frozen=True, kw_only=True)
class HierarchicalOptions(DdpOptions):
    """`ranks_per_node`: neighbours by rank share a node; 0 takes the largest number up to 8 that divides the ranks.

    Commands put the cluster's number of devices per node in its place where the cluster has several nodes.
    """

    ranks_per_node: Annotated[int, 0] = 0


# ---- joint vectors: the whole model, or DDP's buckets, by one collective ----


def _joint(
    name: str,
    by: str,
    options: JointOptions,
    compressors: str,
    summary: str,
    source: str,
    *,
    also: Callable[[Any], dict[str, Any]] = lambda _: {},
) -> None:
    """Register the scheme that hands joint vectors to the collective `by`.

    `also` returns options of the collective that are none of the scheme, or raises ConfigError.
    """

    def plan(profile: Profile, costs: Costs, options: JointOptions) -> Plan:
        return joint_plan(name, profile, costs, options, by, **also(options))

    scheme(
        name,
        summary=summary,
        source=source,
        defaults=options,
        fusion_unit="model",
        collectives=(by,) if by == "all_reduce" else (by, "all_reduce"),
        compressors=compressors,
    )(plan)


def _block_of(options: S2ReducerOptions) -> dict[str, Any]:
    """Return the width of blocks; they are cut from the joint vector, so one may span the border of two tensors."""
    chosen = build(options.compressor).options
    block = chosen.block if isinstance(chosen, BlockTopKOptions) else BlockTopKOptions().block
    if isinstance(chosen, BlockTopKOptions) and chosen.agreed:
        raise ConfigError(
            f"scheme=s2reducer with compressor={options.compressor}: ranks that agree on blocks need no sketch; "
            f"use compressor=block_topk(block={block}), or scheme=fused_all compressor={options.compressor}"
        )
    return {"block": block}


_joint(
    "gtopk",
    "gtopk",
    JointOptions(),
    "topk",
    "the model (or buckets) by gTop-k: lists are merged in pairs and cut to k, then broadcast",
    "Shi et al. 2019 (gTop-k); D-37",
)
_joint(  # its traffic grows with the world size, so that from 1 / density ranks on it is dense
    "topk",
    "all_gather",
    JointOptions(),
    "topk",
    "exact top-k of the whole model (or of buckets) in an all-gather of fixed size",
    "Aji & Heafield 2017, Lin et al. 2018; D-30",
)
_joint(
    "micro",
    "micro",
    JointOptions(),
    "topk",
    "the model (or buckets) by MiCRO: disjoint selection above one threshold, dense sums at the indices",
    "Yoon & Oh 2023 (MiCRO), Algorithm 1; D-23",
)
_joint(  # the dense warm-up of the authors (128 or 512 iterations) is not part of it
    "oktopk",
    "ok_topk",
    JointOptions(),
    "topk",
    "the model (or buckets) by Ok-Topk: regions sum what was selected, thresholds find about k sums",
    "Li & Hoefler 2022 (Ok-Topk); D-32",
)
_joint(
    "spardl",
    "spar_reduce_scatter",
    SparDlOptions(),
    "topk",
    "sparse reduce-scatter and all-gather with selection at every hop; any number of ranks",
    "SparDL, Zhao et al. 2024; D-33",
)
_joint(
    "sparcml",
    "sparcml_rd",
    JointOptions(),
    "chunk_topm, dgc, gaussiank, hard_threshold, mstopk, redsync, sidco, topk",
    "exact sum of what ranks selected, in streams that turn dense when they have filled up",
    "SparCML, Renggli et al. 2019; D-35",
)
_joint(
    "cltk",
    "all_reduce",
    JointOptions(compressor="cltk"),
    "cltk",
    "one rank's top-k positions in turn, everybody's values there in an all-reduce: no build-up",
    "Chen et al. 2020 (ScaleCom); D-38",
)
_joint(  # the density sets the threshold by the compressor's rule unless it is given one
    "hard_threshold",
    "all_gather_v",
    JointOptions(compressor="hard_threshold"),
    "hard_threshold",
    "all elements above a constant, jointly (or per bucket), in an all-gather of the sizes that ranks have",
    "Strom 2015, Sahu et al. 2021; D-30",
)
_joint(
    "s2reducer",
    "s2_sketch",
    S2ReducerOptions(),
    "block_topk",
    "the model's largest blocks in an all-reduce of a count sketch and a bitmap: the sum is an estimate",
    "Ge et al. 2022 (S2 Reducer), Algorithm 1; D-34",
    also=_block_of,
)


# ---- every element ----


@scheme(
    "ssgd",
    summary="dense all-reduce after backward, no overlap; one message, or one per tensor",
    source="ACP-SGD's naive baseline (variant=per_tensor); D-45",
    defaults=SsgdOptions(),
    fusion_unit="bucket",
    collectives=("all_reduce",),
    compressors="additive",
)
def plan_ssgd(profile: Profile, costs: Costs, options: SsgdOptions) -> Plan:
    """Return the dense plan in which no message starts before backward has ended."""
    transport = dense_transport("ssgd", options.compressor)

    def buckets(part: Profile) -> list[Bucket]:
        messages = units(part.tensors) if options.variant == "per_tensor" else [part.tensors]
        return [Bucket((transport.lane([message]),)) for message in messages]

    return plan_per_dtype("ssgd", profile, costs.world_size, buckets, overlap=False)


@scheme(
    "wfbp",
    summary="wait-free backpropagation: one dense all-reduce per tensor, overlapped with backward",
    source="Poseidon, Zhang et al. 2017; D-45",
    defaults=DenseOptions(),
    fusion_unit="tensor",
    collectives=("all_reduce",),
    compressors="additive",
)
def plan_wfbp(profile: Profile, costs: Costs, options: DenseOptions) -> Plan:
    """Return the dense plan with one message per tensor."""
    lane = dense_transport("wfbp", options.compressor).lane

    def buckets(part: Profile) -> list[Bucket]:
        return [Bucket((lane([unit]),)) for unit in units(part.tensors)]

    return plan_per_dtype("wfbp", profile, costs.world_size, buckets)


@scheme(
    "ddp_fp16",
    summary="PyTorch DDP's buckets, cast to 16 bits for the all-reduce",
    source="PyTorch DDP communication hooks: fp16_compress_hook",
    defaults=DdpOptions(compressor="fp16"),
    fusion_unit="bucket",
    collectives=("all_reduce",),
    compressors="additive",
)
def plan_ddp_fp16(profile: Profile, costs: Costs, options: DdpOptions) -> Plan:
    """Return the plan of `ddp` with its gradients cast."""
    return replace(plan_ddp(profile, costs, options), scheme="ddp_fp16")


@scheme(
    "omnireduce",
    summary="DDP's buckets, of which only blocks travel that are not zero on every rank",
    source="Fei et al. 2021 (OmniReduce); D-36",
    defaults=OmniReduceOptions(),
    fusion_unit="bucket",
    collectives=("block_all_reduce", "all_reduce"),
    compressors="additive",
)
def plan_omnireduce(profile: Profile, costs: Costs, options: OmniReduceOptions) -> Plan:
    """Return the dense plan; nothing is lost, and only gradients with runs of zeros gain anything."""
    blocks = collectives.canonical("block_all_reduce", {"filled": options.filled})
    transport = dense_transport("omnireduce", options.compressor)
    if costs.world_size > 1:
        transport = replace(transport, collective=blocks)
    return plan_per_dtype("omnireduce", profile, costs.world_size, lambda part: ddp_buckets(part, transport))


@scheme(
    "signsgd",
    summary="one bit per element in an all-gather per bucket; every element moves with the majority",
    source="Bernstein et al. 2019; D-24",
    defaults=SignSGDSchemeOptions(),
    fusion_unit="bucket",
    collectives=("all_gather", "all_reduce"),
    compressors="signsgd",
)
def plan_signsgd(profile: Profile, costs: Costs, options: SignSGDSchemeOptions) -> Plan:
    """Return the plan with DDP's buckets; from 64 ranks on, gathered bits outweigh an all-reduce of gradients.

    It votes all the same there, because an average would be another algorithm. One rank alone has no other to vote with
    and keeps its gradient.
    """
    alone = costs.world_size == 1
    transport = dense_transport("signsgd") if alone else Transport(options.compressor, 1.0, "all_gather")
    return plan_per_dtype("signsgd", profile, costs.world_size, lambda part: ddp_buckets(part, transport))


@scheme(
    "hierarchical",
    summary="DDP's buckets, summed inside nodes, then across them",
    source="D-31",
    defaults=HierarchicalOptions(),
    fusion_unit="bucket",
    collectives=("hierarchical_all_reduce",),
    compressors="additive",
)
def plan_hierarchical(profile: Profile, costs: Costs, options: HierarchicalOptions) -> Plan:
    """Return the dense plan; the plan names the size of a node, also when the option leaves it open."""
    size = node_size(options.ranks_per_node, costs.world_size)
    transport = dense_transport("hierarchical", options.compressor)
    transport = replace(transport, collective=f"hierarchical_all_reduce(ranks_per_node={size})")
    first, cap = options.first_bucket_bytes, options.bucket_cap_bytes
    return plan_per_dtype(
        "hierarchical", profile, costs.world_size, lambda part: ddp_buckets(part, transport, first=first, cap=cap)
    )
