"""Plans of other schemes within a budget: `auto` takes the best of them where its own search finds nothing faster."""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from ssfx.collectives import Reducer, collectives
from ssfx.compressors import build
from ssfx.core.errors import ConfigError
from ssfx.perf_model.timing_model import costs_of
from ssfx.planning.costs import Costs
from ssfx.planning.plan import Lane, Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.base import schemes
from ssfx.schemes.carrier import keeps_fraction
from ssfx.schemes.search.auto_budget import Budget
from ssfx.schemes.search.auto_methods import Kind, chooses

MIB = 1 << 20
CAPS_MIB = (5, 25, 100)
MOST_SEARCHED = 1500
"""Larger models get no plan of the schemes that search for long."""

_DENSE = ("wfbp", "ssgd")
_SSFUSION = ("ssfusion_naive", "ssfusion_o", "ssfusion_i", "ssfusion_oi")
GATHERS = ("per_tensor", "hipress", "espresso", *_SSFUSION)

COLLECTIVES = (
    "a2a_ag",
    "all_gather",
    "all_gather_twice",
    "all_reduce",
    "gtopk",
    "hierarchical_all_reduce",
    "micro",
    "ok_topk",
    "quantized_all_reduce",
    "sparcml_rd",
    "spar_reduce_scatter",
)
"""All that plans of these schemes and of the search may use."""


def portfolio(
    profile: Profile, costs: Costs, allowed: Budget, ranks_per_node: int, gathers: bool = True
) -> Iterator[tuple[str, Plan]]:
    """Yield plans of other schemes that are asked for the compressors and densities of a budget, each with its words.

    `gathers`: whether those can win that leave the sum of selections to the receivers, which take long to plan. None
    leaves a tensor out of a step. Where the budget promises anything, none sends what it says
    nothing of. Schemes that cannot be planned here are passed over.
    """
    densities: dict[str, float] = {}
    for kind in allowed.kinds:
        if kind.compressor is not None:
            densities.setdefault(kind.compressor, kind.density)
    costs_for = cache(lambda compressor, density: costs_of(costs, compressor, density))
    for scheme, given in _asked(profile, densities, allowed.promises, ranks_per_node, gathers):
        compressor = given.get("compressor", getattr(schemes[scheme].defaults, "compressor", None))
        try:
            own = costs_for(compressor, given.get("density"))
            plan = schemes[scheme].plan(profile, own, schemes[scheme].options(given))
        except ConfigError:
            continue
        if not leaves_out(plan) and (not allowed.promises or sends_as(plan, allowed.kinds)):
            words = ", ".join(f"{key}={value}" for key, value in given.items() if key != "density")
            yield f"the plan of scheme={scheme}{f' with {words}' if words else ''}", plan


def _asked(
    profile: Profile, densities: dict[str, float], promises: bool, ranks_per_node: int, gathers: bool
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield schemes and their options."""
    small = len(profile.tensors) <= MOST_SEARCHED
    for compressor in (None, "fp16"):
        if compressor is not None and compressor not in densities:
            continue
        given: dict[str, Any] = {} if compressor is None else {"compressor": compressor}
        for scheme in _DENSE if small else ():
            yield scheme, given
        for cap in CAPS_MIB if small else CAPS_MIB[1:]:
            yield "ddp", {**given, "bucket_cap_bytes": cap * MIB}
            if ranks_per_node > 1 and small:
                yield "hierarchical", {**given, "bucket_cap_bytes": cap * MIB, "ranks_per_node": ranks_per_node}
    for scheme in ("acpsgd", "powersgd"):
        if scheme in densities:
            yield scheme, {}
            if scheme == "powersgd" and small:
                yield scheme, {"variant": "wfbp"}
    for scheme in GATHERS if gathers else ():
        if not small and scheme in GATHERS:
            continue
        default = str(getattr(schemes[scheme].defaults, "compressor", ""))
        takes = schemes[scheme].compressors
        usable = [spec for spec in densities if _takes(takes, spec)]
        # What SSFusion sends dense it makes up for with densities without a recorded run.
        kept: dict[str, Any] = {"compensate": False} if promises and scheme in _SSFUSION else {}
        for spec in [default] if default in usable else usable[:1]:
            yield scheme, {"compressor": spec, **({"density": densities[spec]} if keeps_fraction(spec) else {}), **kept}


def _takes(declared: str, spec: str) -> bool:
    one = build(spec)
    if declared == "any":
        return keeps_fraction(spec)
    if declared == "selecting":
        return keeps_fraction(spec) and not one.additive
    return one.name in declared.split(", ")


def leaves_out(plan: Plan) -> bool:
    """Return whether one selection of `plan` covers several tensors, so that of some nothing may be sent."""
    return any(_selects_among(plan, lane) for _, lane in plan.lanes())


def _selects_among(plan: Plan, lane: Lane) -> bool:
    def several(names: tuple[str, ...]) -> bool:
        return len(names) > 1 and sum([plan.by_name[name].numel > 0 for name in names]) > 1

    if all(segment.dense for segment in lane.segments):
        return False
    one = collectives.build(lane.collective)
    if isinstance(one, Reducer) and not one.quantizes and several(lane.tensors):
        return True
    return any(
        segment.compressor is not None and several(segment.tensors) and chooses(segment.compressor)
        for segment in lane.segments
    )


def sends_as(plan: Plan, kinds: Iterable[Kind]) -> bool:
    """Return whether everything that `plan` compresses goes as one of `kinds`: its compressor and density, and the
    reducer where one drops elements on the way. A selection may cover several tensors only where the kind's does.
    """
    known = {(kind.compressor, kind.density, _reducer(kind.collective), kind.leaves_tensors_out) for kind in kinds}
    for _, lane in plan.lanes():
        sent = {(one.compressor, one.density, _reducer(lane.collective)) for one in lane.segments if not one.dense}
        among = bool(sent) and _selects_among(plan, lane)
        if any((*one, True) not in known and (among or (*one, False) not in known) for one in sent):
            return False
    return True


def _reducer(collective: str) -> str:
    """Return the name of a collective that may drop elements, "" of one that brings everything to all ranks."""
    one = collectives.build(collective)
    return one.name if isinstance(one, Reducer) else ""
