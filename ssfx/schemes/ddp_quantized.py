"""DDP in few bits: DDP's buckets in sums that stay quantised, or in 16 bits, on their way."""

from dataclasses import dataclass
from typing import Annotated

from ssfx.collectives.hierarchical import node_size
from ssfx.compressors import compressors
from ssfx.core.errors import ConfigError
from ssfx.planning.costs import Costs
from ssfx.planning.plan import Bucket, Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.base import CompressOptions, scheme
from ssfx.schemes.ddp import DdpOptions
from ssfx.schemes.search.auto_budget import ONE_BIT
from ssfx.schemes.search.byte_groups import BUCKET_CAP_BYTES, FIRST_BUCKET_BYTES, cap_groups, plan_per_dtype
from ssfx.schemes.transport import Transport, dense_transport


@dataclass(frozen=True, kw_only=True)
class DdpQuantizedOptions(CompressOptions):
    """Caps in dense bytes: of the first bucket of each dtype, and of all later ones.

    `compressor`: onebit has two means for every 1,024 elements here, unless it says another bucket.
    `ranks_per_node`: neighbours by rank share a node, and sum in float32 there first; 0: none do. Commands put the
    cluster's number of devices per node in its place where the cluster has several nodes.
    """

    compressor: str = "fp8"
    first_bucket_bytes: int = FIRST_BUCKET_BYTES
    bucket_cap_bytes: int = BUCKET_CAP_BYTES
    ranks_per_node: Annotated[int, 0] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.first_bucket_bytes < 1 or self.bucket_cap_bytes < 1:
            raise ValueError("bucket caps must be at least 1 byte")


@dataclass(frozen=True, kw_only=True)
class DdpBf16Options(DdpOptions):
    """`compressor`: bf16, or fp16, which has more digits and a smaller range. `ranks_per_node`: as of ddp_quantized."""

    compressor: str | None = "bf16"
    ranks_per_node: Annotated[int, 0] = 0


@scheme(
    "ddp_quantized",
    summary="PyTorch DDP's buckets in 8, 4 or 1 bits: quantised, summed in float32 by parts, quantised again",
    source="Markov et al. 2022 (CGX); Wang et al. 2023 (ZeRO++), qgZ; Tang et al. 2021 (1-bit Adam), its exchange",
    defaults=DdpQuantizedOptions(),
    fusion_unit="bucket",
    collectives=("quantized_all_reduce", "all_reduce"),
    compressors="bf16, fp16, fp8, qsgd, onebit",
)
def plan_ddp_quantized(profile: Profile, costs: Costs, options: DdpQuantizedOptions) -> Plan:
    """Return the plan with DDP's buckets; one rank alone keeps its gradient."""
    return _plan("ddp_quantized", profile, costs, options, in_blocks(options.compressor))


@scheme(
    "ddp_bf16",
    summary="PyTorch DDP's buckets in 16 bits, but sums in float32: an element is rounded twice, whatever the ranks",
    source="NVIDIA Megatron-LM, pull request 3067: 16-bit messages, sums in float32",
    defaults=DdpBf16Options(),
    fusion_unit="bucket",
    collectives=("quantized_all_reduce", "all_reduce"),
    compressors="bf16, fp16",
)
def plan_ddp_bf16(profile: Profile, costs: Costs, options: DdpBf16Options) -> Plan:
    """Return the plan with DDP's buckets; `ddp_fp16` sums in 16 bits on the way, with a rounding for every rank."""
    if options.compressor is None:
        raise ConfigError("scheme=ddp_bf16 sends 16 bits: compressor=bf16 or fp16; scheme=ddp sends 32")
    return _plan("ddp_bf16", profile, costs, options, options.compressor)


def in_blocks(compressor: str) -> str:
    """Return the spec with means of blocks in place of means of whole parts, which have tensors of any size in them."""
    return ONE_BIT if compressors.canonical(compressor) == "onebit" else compressor


def _plan(
    name: str, profile: Profile, costs: Costs, options: DdpQuantizedOptions | DdpBf16Options, compressor: str
) -> Plan:
    dense = dense_transport(name)
    size = node_size(options.ranks_per_node or 1, costs.world_size)
    collective = "quantized_all_reduce" if size == 1 else f"quantized_all_reduce(ranks_per_node={size})"
    transport = Transport(compressor, 1.0, collective) if costs.world_size > 1 else dense

    def buckets(part: Profile) -> list[Bucket]:
        tensors = part.tensors
        groups = cap_groups([spec.nbytes for spec in tensors], options.first_bucket_bytes, options.bucket_cap_bytes)
        made = []
        for group in (tensors[at.start : at.stop] for at in groups):
            filled = any(spec.numel for spec in group)
            made.append(Bucket(((transport if filled else dense).lane([group]),)))
        return made

    return plan_per_dtype(name, profile, costs.world_size, buckets)
