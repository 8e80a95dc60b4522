"""MergeComp: very few contiguous groups, each compressed jointly; cuts are added while the step gets shorter.

Source: D-47. The searches are in `mergecomp_search` (by prediction) and `measured_search`.
"""

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Annotated, Literal

from ssfx.core.errors import ConfigError
from ssfx.planning.costs import Costs
from ssfx.planning.plan import Bucket, Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.base import scheme
from ssfx.schemes.carrier import sparse_carrier
from ssfx.schemes.online_planning import CutSearch, OnlinePlanning
from ssfx.schemes.search.byte_groups import plan_per_dtype
from ssfx.schemes.search.contiguous_groups import JointModel, ProfiledOptions, joint_buckets, with_prediction
from ssfx.schemes.search.measured_search import parse_cuts
from ssfx.schemes.search.mergecomp_search import algorithm_2, exhaustive

ALPHA_STOP = 0.02
"""Another group must shorten the step by this share for the search to go on; two groups are always tried."""


@dataclass(frozen=True, kw_only=True)
class MergecompOptions(ProfiledOptions):
    """Options of MergeComp.

    max_groups: the paper's Y. search: "exhaustive" finds the best cuts for every number of groups, "measured" times
    real iterations, two groups only. cuts: no search, groups end behind those numbers of tensors in backward order, as
    "8" or "6,10". step, probe_iters, probe_warmup: stride of the measured search, iterations per probe, and probes of
    warm-up before the first that counts.
    """

    search: Literal["exhaustive", "measured"] = "exhaustive"
    max_groups: Annotated[int, 2] = 2
    cuts: str | int = ""
    step: Annotated[int, 1] = 2
    probe_iters: Annotated[int, 1] = 20
    probe_warmup: Annotated[int, 0] = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_cuts(self.cuts)
        given, measured = self.cuts != "", self.search == "measured"
        self.refuse_idle(
            (given, "search", 'cuts=""'),
            (given, "max_groups", 'cuts=""'),
            (measured, "max_groups", "search=exhaustive"),
            *((given or not measured, option, "search=measured") for option in ("step", "probe_iters", "probe_warmup")),
        )

    def online(self) -> OnlinePlanning:
        """Return the search by timing, if it was asked for."""
        search = CutSearch(stride=self.step, probe_steps=self.probe_iters, warmup_probes=self.probe_warmup)
        return replace(super().online(), search=search if self.search == "measured" else None)


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
    """Return the plan with the groups of the search; its notes hold the predicted time.

    With search=measured it is the plan that the measuring starts from: two groups of equal tensor counts. Each probe is
    the plan of `cuts`. One rank alone makes one group.
    """
    carrier = sparse_carrier(options, costs.world_size)
    given = parse_cuts(options.cuts)
    if options.search == "measured":
        given = (len(profile.tensors) // 2,)
    elif given and given[-1] >= len(profile.tensors):
        raise ConfigError(
            f"scheme=mergecomp: cuts={options.cuts} cuts behind tensor {given[-1]} of {len(profile.tensors)}; "
            f"cuts go from 1 to {len(profile.tensors) - 1}"
        )

    def buckets(part: Profile) -> list[Bucket]:
        model = JointModel.of(part, costs, carrier)
        if given:
            mine = {spec.name for spec in part.tensors if spec.numel}
            pieces = [0, *accumulate(spec.name in mine for spec in profile.tensors)]  # before every tensor of the model
            cuts = sorted({pieces[cut] for cut in given} - {0, pieces[-1]})
        elif costs.world_size > 1:
            found = exhaustive(model, min(options.max_groups, model.num_pieces))
            cuts = list(algorithm_2(found, ALPHA_STOP).cuts)
        else:
            cuts = []
        return joint_buckets(part, carrier, model.groups(cuts))

    return with_prediction(plan_per_dtype("mergecomp", profile, costs.world_size, buckets), profile, costs)
