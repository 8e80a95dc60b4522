"""Per-tensor compression: every tensor is compressed on its own, and the payloads of neighbours share a message."""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from ssfx.planning.costs import Costs
from ssfx.planning.plan import Bucket, Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.base import CompressOptions, scheme
from ssfx.schemes.online_planning import OnlinePlanning
from ssfx.schemes.search.byte_groups import (
    BUCKET_CAP_BYTES,
    FIRST_BUCKET_BYTES,
    Group,
    cap_groups,
    plan_per_dtype,
    units,
)
from ssfx.schemes.transport import Transport, keeps_fraction, sparse_transport


@dataclass(frozen=True, kw_only=True)
class PerTensorOptions(CompressOptions):
    """`grouping` of payloads into messages.

    "cap": PyTorch DDP's 1 MiB and 25 MiB of dense gradient. "scaled_cap": the same caps times payload bytes over dense
    bytes, counted in payload bytes (ACP-SGD, section IV-B). "none": one message per tensor.
    `density_warmup`: in so many steps of training the density falls from dense to its value, in four stages of equal
    ratios (DGC, section 3.3); 0: none. Plans and simulations are of the steps after it.
    """

    grouping: Literal["cap", "scaled_cap", "none"] = "cap"
    density_warmup: Annotated[int, 0] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.density_warmup and not keeps_fraction(self.compressor):
            raise ValueError(f"density_warmup has no effect with compressor={self.compressor}, which has no density")

    def online(self) -> OnlinePlanning:
        """Return the warm-up of the density."""
        return replace(super().online(), density_warmup_steps=self.density_warmup)


@scheme(
    "per_tensor",
    summary="every tensor compressed on its own, payloads fused into buckets",
    source="SSFusion section II-D, ACP-SGD section IV-B; D-46",
    defaults=PerTensorOptions(),
    fusion_unit="tensor",
    collectives=("all_gather", "all_reduce"),
)
def plan_per_tensor(profile: Profile, costs: Costs, options: PerTensorOptions) -> Plan:
    """Return the plan with one compressor call per tensor, so that no tensor goes missing."""
    transport = sparse_transport(options, costs.world_size)

    def buckets(part: Profile) -> list[Bucket]:
        tensors = units(part.tensors)
        return [
            Bucket((transport.lane(tensors[g.start : g.stop]),)) for g in _groups(tensors, transport, options.grouping)
        ]

    return plan_per_dtype("per_tensor", profile, costs.world_size, buckets)


def _groups(tensors: list[Group], transport: Transport, grouping: str) -> list[range]:
    if grouping == "none":
        return [range(i, i + 1) for i in range(len(tensors))]
    dense = [sum(spec.nbytes for spec in group) for group in tensors]
    if grouping == "cap" or not sum(dense):
        return cap_groups(dense, FIRST_BUCKET_BYTES, BUCKET_CAP_BYTES)
    payload = [transport.nbytes(sum(spec.numel for spec in group), dtype=group[0].dtype) for group in tensors]
    share = sum(payload) / sum(dense)
    return cap_groups(payload, share * FIRST_BUCKET_BYTES, share * BUCKET_CAP_BYTES)
