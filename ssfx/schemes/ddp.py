"""DDP: dense all-reduces of neighbouring tensors packed up to a byte cap, as PyTorch does."""

from dataclasses import dataclass, replace

from ssfx.planning.costs import Costs
from ssfx.planning.plan import Bucket, Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.base import DenseOptions, scheme
from ssfx.schemes.online_planning import OnlinePlanning
from ssfx.schemes.search.byte_groups import BUCKET_CAP_BYTES, FIRST_BUCKET_BYTES, cap_groups, plan_per_dtype
from ssfx.schemes.transport import Transport, dense_transport


@dataclass(frozen=True, kw_only=True)
class DdpOptions(DenseOptions):
    """Caps in dense bytes: of the first bucket of each dtype, and of all later ones.

    `rebuild`: after the first exchange the runtime groups again in the order in which gradients really arrived.
    """

    first_bucket_bytes: int = FIRST_BUCKET_BYTES
    bucket_cap_bytes: int = BUCKET_CAP_BYTES
    rebuild: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.first_bucket_bytes < 1 or self.bucket_cap_bytes < 1:
            raise ValueError("bucket caps must be at least 1 byte; for one bucket per tensor choose scheme=wfbp")

    def online(self) -> OnlinePlanning:
        """Return whether the runtime groups again."""
        return replace(super().online(), observed_steps=int(self.rebuild))


@scheme(
    "ddp",
    summary="dense all-reduces of tensors packed to 1 MiB, then 25 MiB, overlapped with backward",
    source="PyTorch DistributedDataParallel, Li et al. 2020; D-45",
    defaults=DdpOptions(),
    fusion_unit="bucket",
    collectives=("all_reduce",),
    compressors="additive",
)
def plan_ddp(profile: Profile, costs: Costs, options: DdpOptions) -> Plan:
    """Return the dense plan with PyTorch DDP's buckets, in the profile's order.

    One could list a dense segment per tensor; here a bucket is one segment, the form that the runtime can
    exchange without packing. The bytes and the timeline are the same.
    """
    transport = dense_transport("ddp", options.compressor)
    first, cap = options.first_bucket_bytes, options.bucket_cap_bytes
    return plan_per_dtype(
        "ddp", profile, costs.world_size, lambda part: ddp_buckets(part, transport, first=first, cap=cap)
    )


def ddp_buckets(
    part: Profile, transport: Transport, *, first: int = FIRST_BUCKET_BYTES, cap: int = BUCKET_CAP_BYTES
) -> list[Bucket]:
    """Return the buckets of one dtype under the byte caps, one segment each."""
    groups = cap_groups([spec.nbytes for spec in part.tensors], first, cap)
    return [Bucket((transport.lane([part.tensors[g.start : g.stop]]),)) for g in groups]
