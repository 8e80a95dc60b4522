"""auto: for every bucket the exchange that is best there, of all that a quality, density or compressor allows."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Annotated, Any

from ssfx.planning.costs import Costs
from ssfx.planning.plan import Bucket, Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.base import SchemeOptions, scheme
from ssfx.schemes.online_planning import Measured, OnlinePlanning, PlanLimits
from ssfx.schemes.search.auto_budget import Budget, budget
from ssfx.schemes.search.auto_methods import Method, methods
from ssfx.schemes.search.auto_search import best_choices, candidate_cuts
from ssfx.schemes.search.auto_tables import TableMaker
from ssfx.schemes.search.auto_trial import worth_trying
from ssfx.schemes.search.byte_groups import dtype_profiles, plan_per_dtype
from ssfx.schemes.search.cheapest_plan import Priced, least, priced
from ssfx.schemes.search.extra_steps import TRAIN_STEPS, Quality
from ssfx.schemes.search.recorded_network import Network
from ssfx.simulator.pricing.timeline import StepPrices

REPRICED = 3
"""How many of the best plans of the search are priced message by message."""

NEAR, COMPARED = 0.1, 12
"""Plans whose prices are so much above the least are compared with what exchanges take from backward; at most so many.
"""


@dataclass(frozen=True, kw_only=True)
class AutoOptions(SchemeOptions):
    """What plans may send with: at most one of the first two.

    quality: strict, normal or loose, methods that need at most 2, 5 or 10 % more steps than dense training, by the
    upper end of what recorded runs say of this family, optimizer and compression; dense, every element in 32 or 16
    bits, which the others allow too; null is normal. train_steps: the steps of that dense training, of which a longer
    one loses less; null is 10,000. clipped: whether training clips gradients; recorded runs that do alike count, where
    there are any; null: all count. batch: tokens of a rank and step, or images of what reads none; null: those of the
    profile, and those of the runs where it has none, as in a script of one's own. density: the kept fraction of every
    selection, with all else allowed. compressor: this one or dense, nothing else.
    ranks_per_node: so many neighbours by rank share a node, and sums may be formed there first; 0: nodes are not known.
    Commands put the cluster's number of devices in its place. profile_iters: dense iterations before the plan, the
    first of which is not counted. trial_iters: with each plan that is worth trying so many steps are timed, up to three
    times, before the fastest is kept; 0: the plan that is predicted to be fastest is. run_steps: the steps of the run:
    its rest may be too short for a trial; 0: not known. Commands put their own in its place.
    replan_above: when steps take longer or less long than at first by more than this share, a plan is made anew; 0:
    never. replan_after: of how many steps the median counts for that.
    """

    quality: Quality | None = None
    density: Annotated[float | None, "(0, 1]"] = None
    compressor: str | None = None
    train_steps: Annotated[int | None, 1] = None
    clipped: bool | None = None
    batch: Annotated[int | None, 1] = None
    ranks_per_node: Annotated[int, 0] = 0
    profile_iters: int = 5
    trial_iters: Annotated[int, 0] = 3
    run_steps: Annotated[int, 0] = 0
    replan_above: Annotated[float, 0] = 0.15
    replan_after: Annotated[int, 1] = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [name for name in ("quality", "density") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} are budgets, and only one may be given; drop {given[0]}")
        if self.compressor is not None and given and given[0] != "density":
            raise ValueError(f"{given[0]} has no effect with compressor={self.compressor}; drop one of them")
        of_training = next((name for name in ("train_steps", "batch") if getattr(self, name) is not None), None)
        if of_training is not None:
            other = next((name for name in (*given, "compressor") if name != "quality" and getattr(self, name)), None)
            if other or self.quality == "dense":
                raise ValueError(f"{of_training} has no effect with {other or 'quality=dense'}; drop it")
        if self.profile_iters < 2:
            raise ValueError(f"profile_iters must be at least 2, as the first is not counted; got {self.profile_iters}")

    def online(self) -> OnlinePlanning:
        """Return what is observed, measured and tried before a plan stays, and what it is held to."""
        return OnlinePlanning(
            compressor=self.compressor,
            density=self.density,
            observed_steps=self.profile_iters,
            to_measure=self.to_measure,
            trial_steps=self.trial_iters,
            run_steps=self.run_steps,
            limits=PlanLimits(window_steps=self.replan_after, time_change=self.replan_above),
        )

    def to_measure(self, costs: Costs) -> Measured:
        """Return the compressors that a plan may use, each with a density, and whether anything adds up on the way."""
        kinds = self.budget(costs, None).kinds
        found = {kind.compressor: kind.density for kind in kinds if kind.compressor is not None}
        return found, any(kind.collective not in ("all_reduce", "all_gather") for kind in kinds)

    def budget(self, costs: Costs, network: Network | None) -> Budget:
        """Return what may be used on the ranks of `costs` for `network`; None: for any."""
        network = network and replace(network, clipped=self.clipped, batch=self.batch or network.batch)
        return budget(
            costs,
            self.quality or "normal",
            self.density,
            self.compressor,
            self.ranks_per_node,
            self.train_steps or TRAIN_STEPS,
            network,
        )


def plans_worth_trying(profile: Profile, costs: Costs, options: AutoOptions) -> list[Plan]:
    """Return the plan of `plan_auto`, and those beside it that may turn out to be faster."""
    known = StepPrices(profile, costs)
    plan = _planned(profile, costs, options, known)
    return worth_trying(plan, profile, costs, options.budget(costs, Network.of(profile, costs.world_size)).kinds, known)


@scheme(
    "auto",
    summary="for each bucket the fastest exchange that a quality, density or compressor allows",
    source="ssfx; labels over the backward order in the timeline of D-42",
    defaults=AutoOptions(),
    fusion_unit="bucket",
    collectives=(
        "a2a_ag",
        "all_gather",
        "all_reduce",
        "hierarchical_all_reduce",
        "micro",
        "ok_topk",
        "quantized_all_reduce",
        "spar_reduce_scatter",
    ),
    compressors="any",
    offload=True,
    profiled=True,
    worth_trying=plans_worth_trying,
)
def plan_auto(profile: Profile, costs: Costs, options: AutoOptions) -> Plan:
    """Return the fastest plan that the search over buckets and methods finds within the budget.

    Its notes hold the predicted time, the budget, and what may not be used and why.
    """
    return _planned(profile, costs, options, StepPrices(profile, costs))


def _planned(profile: Profile, costs: Costs, options: AutoOptions, known: StepPrices) -> Plan:
    allowed = options.budget(costs, Network.of(profile, costs.world_size))
    found = priced(_searched(profile, costs, allowed), profile, costs, known)
    return _noted(_under_contention(found, costs, known), allowed)


def _under_contention(found: list[Priced], costs: Costs, known: StepPrices) -> Priced:
    """Return the plan that ends first if exchanges slow backward down; of equal ones that with the least price."""
    # A disturbed step is no shorter than its price, so the first price above the best disturbed step ends the look.
    best = sorted(found, key=lambda one: one.price_s)
    if not any(costs.occupancy.values()):
        return best[0]
    near = [one for one in best if one.price_s <= (1 + NEAR) * best[0].price_s][:COMPARED]
    times: list[Priced] = []
    for one in near:
        if times and one.price_s > least(times).price_s:
            break
        times.append(Priced(one.label, one.plan, known.disturbed_s(one.plan)))
    return near[times.index(least(times))]


def _searched(profile: Profile, costs: Costs, allowed: Budget) -> Iterator[tuple[str, Plan]]:
    """Yield the best plans that the search finds without the host, then with it; each dtype is searched on its own."""
    parts = dtype_profiles(profile)
    makers = [TableMaker(part, costs, candidate_cuts(part)) for part in parts]
    every = [methods([kind for kind in allowed.kinds if kind.fits(p.tensors[0].dtype)], p.tensors) for p in parts]
    yield from _found(profile, costs, makers, every)
    hosted = [
        [one for method in own if (one := maker.on_host(method))] for maker, own in zip(makers, every, strict=True)
    ]
    if any(hosted):
        yield from _found(profile, costs, makers, [[*own, *more] for own, more in zip(every, hosted, strict=True)])


def _found(
    profile: Profile, costs: Costs, makers: list[TableMaker], every: list[list[Method]]
) -> Iterator[tuple[str, Plan]]:
    """Yield the best plans by the methods of each dtype."""
    share = max(costs.occupancy.values(), default=0.0)
    found = [
        best_choices(maker.tables(own), REPRICED, occupancy=share) for maker, own in zip(makers, every, strict=True)
    ]
    for rows in list(product(*found))[: REPRICED**2]:
        by_part = {maker.part.tensors: row for maker, *row in zip(makers, every, rows, strict=True)}

        def buckets(part: Profile, by_part: Any = by_part) -> Iterator[Bucket]:
            own, choice = by_part[part.tensors]
            for at, number in zip(choice.buckets, choice.methods, strict=True):
                yield own[number].bucket(part.tensors[at.start : at.stop])

        yield "the search over buckets and methods", plan_per_dtype("auto", profile, costs.world_size, buckets)


def _noted(chosen: Priced, allowed: Budget) -> Plan:
    notes = [("predicted_ms", f"{1e3 * chosen.price_s:.6g}"), ("budget", allowed.words), ("chosen", chosen.label)]
    notes += [("not used", reason) for reason in allowed.left_out]
    return replace(chosen.plan, scheme="auto", notes=tuple(notes))
