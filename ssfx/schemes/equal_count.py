"""Equal counts: groups of as many tensors each, compressed jointly; no profile, no costs.

Two published baselines are of this kind: what the public code of MergeComp and Cupcake does without its planner, and
what the SSFusion authors ran as OMGS. Source: D-47 to D-49.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from ssfx.planning.costs import Costs
from ssfx.planning.plan import Bucket, Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.base import CompressOptions, scheme
from ssfx.schemes.omgs import twice
from ssfx.schemes.search.byte_groups import joined, plan_per_dtype, units
from ssfx.schemes.transport import Transport, sparse_transport


@dataclass(frozen=True, kw_only=True)
class EqualCountOptions(CompressOptions):
    """`groups`: how many of them, at most; of each dtype."""

    groups: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.groups < 1:
            raise ValueError(
                f"groups must be at least 1, got {self.groups}; scheme=per_tensor compresses tensors one by one"
            )


@dataclass(frozen=True, kw_only=True)
class OmgsFixedOptions(CompressOptions):
    """`tensors_per_group`: SSFusion's runs have 2 (VGG-16, ResNet-50), 6 (LSTM), 7 (Inception-v4) and 10 (others)."""

    tensors_per_group: Annotated[int, 1] = 10


@scheme(
    "equal_count",
    summary="a given number of groups of equally many tensors, each compressed jointly",
    source="MergeComp and Cupcake, public code without a planner; D-47, D-49",
    defaults=EqualCountOptions(),
    fusion_unit="bucket",
    collectives=("all_gather", "all_reduce"),
)
def plan_equal_count(profile: Profile, costs: Costs, options: EqualCountOptions) -> Plan:
    """Return the plan of groups of L // groups tensors; the last one takes the remainder as well."""
    transport = sparse_transport(options, costs.world_size)

    def starts(num: int) -> range:
        groups = min(options.groups, num)
        return range(0, num // groups * groups, num // groups)

    return _plan("equal_count", profile, costs, transport, starts)


@scheme(
    "omgs_fixed",
    summary="groups of a given number of tensors, each compressed jointly: what SSFusion's authors ran as OMGS",
    source="SSFusion, public code; D-48",
    defaults=OmgsFixedOptions(),
    fusion_unit="bucket",
    collectives=("all_gather", "all_gather_twice", "all_reduce"),
)
def plan_omgs_fixed(profile: Profile, costs: Costs, options: OmgsFixedOptions) -> Plan:
    """Return the plan of groups of `tensors_per_group` tensors; the last one may have fewer."""
    transport = twice(options, costs.world_size)
    return _plan("omgs_fixed", profile, costs, transport, lambda num: range(0, num, options.tensors_per_group))


def _plan(name: str, profile: Profile, costs: Costs, transport: Transport, starts_of: Callable[[int], range]) -> Plan:
    """Return the plan whose groups start at the given ones of the tensors that have elements."""

    def buckets(part: Profile) -> list[Bucket]:
        tensors = units(part.tensors)
        starts = starts_of(len(tensors))
        stops = [*starts[1:], len(tensors)]
        return [Bucket((transport.lane([joined(tensors[a:b])]),)) for a, b in zip(starts, stops, strict=True)]

    return plan_per_dtype(name, profile, costs.world_size, buckets)
