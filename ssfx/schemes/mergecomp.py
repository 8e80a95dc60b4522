"""MergeComp: very few contiguous groups, each compressed jointly; cuts are added while the step gets shorter.

Source: D-47. The search is in `mergecomp_search`.
"""

from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated

from ssfx.core.errors import ConfigError
from ssfx.planning.costs import Costs
from ssfx.planning.plan import Bucket, Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.base import scheme
from ssfx.schemes.search.byte_groups import plan_per_dtype
from ssfx.schemes.search.contiguous_groups import JointModel, ProfiledOptions, joint_buckets, with_prediction
from ssfx.schemes.search.mergecomp_search import algorithm_2, exhaustive
from ssfx.schemes.transport import sparse_transport

ALPHA_STOP = 0.02
"""Another group must shorten the step by this share for the search to go on; two groups are always tried."""


def parse_cuts(text: str | int) -> tuple[int, ...]:
    """Return the cuts that "8" or "6,10" names, none for empty text; ValueError unless they ascend from 1."""
    parts = [part.strip() for part in str(text).split(",")] if text != "" else []
    cuts = tuple(int(part) if part.isdecimal() else 0 for part in parts)
    if any(b <= a for a, b in zip((0, *cuts), cuts, strict=False)):
        raise ValueError(f'cuts must be ascending numbers of tensors, such as "8" or "6,10"; got {text!r}')
    return cuts


@dataclass(frozen=True, kw_only=True)
class MergecompOptions(ProfiledOptions):
    """Options of MergeComp.

    max_groups: the paper's Y. cuts: no search, groups end behind those numbers of tensors in backward order, as "8" or
    "6,10".
    """

    max_groups: Annotated[int, 2] = 2
    cuts: str | int = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_cuts(self.cuts)
        self.refuse_idle((self.cuts != "", "max_groups", 'cuts=""'))


@scheme(
    "mergecomp",
    summary="at most max_groups contiguous groups, each compressed jointly, cut where it shortens the step most",
    source="MergeComp, Algorithm 2; D-47",
    defaults=MergecompOptions(),
    fusion_unit="bucket",
    collectives=("all_gather", "all_reduce"),
    profiled=True,
)
def plan_mergecomp(profile: Profile, costs: Costs, options: MergecompOptions) -> Plan:
    """Return the plan with the groups of the search, or of `cuts`; its notes hold the predicted time.

    One rank alone makes one group.
    """
    transport = sparse_transport(options, costs.world_size)
    given = parse_cuts(options.cuts)
    if given and given[-1] >= len(profile.tensors):
        raise ConfigError(
            f"scheme=mergecomp: cuts={options.cuts} cuts behind tensor {given[-1]} of {len(profile.tensors)}; "
            f"cuts go from 1 to {len(profile.tensors) - 1}"
        )

    def buckets(part: Profile) -> list[Bucket]:
        model = JointModel.of(part, costs, transport)
        if given:
            mine = {spec.name for spec in part.tensors if spec.numel}
            pieces = [0, *accumulate(spec.name in mine for spec in profile.tensors)]  # before every tensor of the model
            cuts = sorted({pieces[cut] for cut in given} - {0, pieces[-1]})
        elif costs.world_size > 1:
            found = exhaustive(model, min(options.max_groups, model.num_pieces))
            cuts = list(algorithm_2(found, ALPHA_STOP).cuts)
        else:
            cuts = []
        return joint_buckets(part, transport, model.groups(cuts))

    return with_prediction(plan_per_dtype("mergecomp", profile, costs.world_size, buckets), profile, costs)
