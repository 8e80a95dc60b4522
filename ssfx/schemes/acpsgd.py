"""ACP-SGD: PowerSGD's two factors in turns, in buffers that overlap with backward."""

from dataclasses import dataclass
from typing import Annotated

from ssfx.compressors import build
from ssfx.compressors.acpsgd import ACPSGDOptions
from ssfx.compressors.lowrank import split
from ssfx.planning.costs import Costs
from ssfx.planning.plan import Bucket, Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.base import CompressOptions, scheme
from ssfx.schemes.ddp import ddp_buckets
from ssfx.schemes.search.byte_groups import BUCKET_CAP_BYTES, Group, joined, plan_per_dtype, units
from ssfx.schemes.search.factor_buffers import buffer_groups, factor_bytes, threshold_bytes
from ssfx.schemes.transport import Transport, dense_transport


@dataclass(frozen=True, kw_only=True)
class ACPSGDSchemeOptions(CompressOptions):
    """`buffer_bytes` of dense gradient would fill one buffer; 0 gives every tensor its own message.

    `overlap` False: no message starts before backward has ended, as in the paper's naive variant. The rank is the
    compressor's: acpsgd(rank=4).
    """

    compressor: str = "acpsgd"
    buffer_bytes: Annotated[int, 0] = BUCKET_CAP_BYTES
    overlap: bool = True


@scheme(
    "acpsgd",
    summary="rank-r factors P and Q in turns, one overlapped all-reduce per compressed buffer",
    source="Zhang et al. 2023 (ACP-SGD), Algorithm 2; D-40",
    defaults=ACPSGDSchemeOptions(),
    fusion_unit="bucket",
    collectives=("all_reduce",),
    compressors="acpsgd",
)
def plan_acpsgd(profile: Profile, costs: Costs, options: ACPSGDSchemeOptions) -> Plan:
    """Return the plan with the compressed-buffer rule applied to the mean of a tensor's two factors.

    The paper groups P and Q factors apart, so that odd and even steps have different buffers; a plan has one grouping,
    and the mean is what a buffer carries in two steps over two. Buffers without a matrix worth factoring are dense.
    """
    chosen = build(options.compressor).options
    assert isinstance(chosen, ACPSGDOptions)
    dense = dense_transport("acpsgd")
    factors = Transport(options.compressor, 1.0, "all_reduce")

    def lane_transport(group: Group) -> Transport:
        return factors if split(tuple(spec.shape for spec in group), chosen).matrices else dense

    def buckets(part: Profile) -> list[Bucket]:
        if costs.world_size == 1:
            return ddp_buckets(part, dense)
        tensors = units(part.tensors)
        mean_bytes = [sum(sum(factor_bytes(spec.shape, chosen)) for spec in group) / 2 for group in tensors]
        model_bytes = 4 * sum(part.numel)
        limit_bytes = threshold_bytes(mean_bytes, model_bytes, options.buffer_bytes)
        groups = [joined(tensors[g.start : g.stop]) for g in buffer_groups(mean_bytes, limit_bytes)]
        return [Bucket((lane_transport(group).lane([group]),)) for group in groups]

    return plan_per_dtype("acpsgd", profile, costs.world_size, buckets, overlap=options.overlap)
