"""PowerSGD: low-rank factors of all matrices, in one message after backward or bucket by bucket during it."""

from dataclasses import dataclass
from typing import Annotated, Literal

from ssfx.compressors import build
from ssfx.compressors.lowrank import LowRankOptions, split
from ssfx.planning.costs import Costs
from ssfx.planning.plan import Bucket, Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.base import CompressOptions, scheme
from ssfx.schemes.search.byte_groups import (
    BUCKET_CAP_BYTES,
    FIRST_BUCKET_BYTES,
    Group,
    cap_groups,
    joined,
    plan_per_dtype,
    units,
)
from ssfx.schemes.search.whole_model import JointOptions, joint_plan
from ssfx.schemes.transport import Transport, dense_transport


@dataclass(frozen=True, kw_only=True)
class PowerSGDSchemeOptions(CompressOptions):
    """`variant` "packed": the factors of the whole model in one message, after backward, as the paper's code does.

    "wfbp": one message for each of DDP's buckets, overlapped with backward. "hook": as PyTorch's hook executes it, for
    each bucket of `buffer_bytes` (0: each tensor) a dense message of what is not factored, then P and Q, and a wait for
    the device, so that backward stands still for all of them. The rank is the compressor's: powersgd(rank=4).
    """

    compressor: str = "powersgd"
    variant: Literal["packed", "wfbp", "hook"] = "packed"
    buffer_bytes: Annotated[int, 0] = BUCKET_CAP_BYTES

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.variant != "hook" and self.buffer_bytes != BUCKET_CAP_BYTES:
            raise ValueError(f"buffer_bytes has no effect with variant={self.variant}; drop it or choose variant=hook")


@scheme(
    "powersgd",
    summary="rank-r factors of every matrix, two small all-reduces, for the model or per bucket",
    source="Vogels et al. 2019; PyTorch's powerSGD hook; D-26",
    defaults=PowerSGDSchemeOptions(),
    fusion_unit="model",
    collectives=("all_reduce",),
    compressors="powersgd",
)
def plan_powersgd(profile: Profile, costs: Costs, options: PowerSGDSchemeOptions) -> Plan:
    """Return the plan; tensors that are not worth factoring travel as they are, in the second message.

    A message none of whose tensors is worth factoring is dense.
    """
    if options.variant == "hook":
        return _hook(profile, costs, options)
    joint = JointOptions(compressor=options.compressor)
    return joint_plan("powersgd", profile, costs, joint, "all_reduce", capped=options.variant == "wfbp")


def _hook(profile: Profile, costs: Costs, options: PowerSGDSchemeOptions) -> Plan:
    """Return buckets of a dense message and one of factors each, which all come after backward: see the options."""
    chosen = build(options.compressor).options
    assert isinstance(chosen, LowRankOptions)
    dense, factors = dense_transport("powersgd"), Transport(options.compressor, 1.0, "all_reduce")
    caps = (min(FIRST_BUCKET_BYTES, options.buffer_bytes), options.buffer_bytes)

    def bucket(own: Group) -> Bucket:
        apart = {spec.name: bool(split((spec.shape,), chosen).matrices) for spec in own}
        lanes = [
            transport.lane([part])
            for transport, factored in ((dense, False), (factors, True))
            if (part := tuple(spec for spec in own if apart[spec.name] == factored))
        ]
        return Bucket(tuple(lanes))

    def buckets(part: Profile) -> list[Bucket]:
        tensors = units(part.tensors)
        sizes = [sum(spec.nbytes for spec in group) for group in tensors]
        return [bucket(joined(tensors[group.start : group.stop])) for group in cap_groups(sizes, *caps)]

    return plan_per_dtype("powersgd", profile, costs.world_size, buckets, overlap=False)
