"""make_plan: the one way from a scheme's name to a Plan, with every declared capability checked."""

from typing import Any

from ssfx.collectives import Reducer, collectives
from ssfx.compressors import build
from ssfx.compressors.memories import Memory
from ssfx.core.errors import ConfigError
from ssfx.planning.costs import Costs
from ssfx.planning.plan import Lane, Plan
from ssfx.planning.profile import Profile
from ssfx.schemes import schemes
from ssfx.schemes.base import CompressOptions
from ssfx.schemes.search.contiguous_groups import MAX_INDEX
from ssfx.schemes.transport import check_density


def make_plan(scheme: str, profile: Profile, costs: Costs, options: dict[str, Any] | None = None) -> Plan:
    """Return the plan of `scheme`; ConfigError when the options or the combination of components cannot work.

    A density that is among the options must have an effect; the default one need not.
    """
    entry = schemes[scheme]
    given = options or {}
    chosen = entry.options(given)
    plan = entry.plan(profile, costs, chosen)
    if isinstance(chosen, CompressOptions) and "density" in given:
        check_density(chosen.compressor, chosen.density)
    check_capabilities(plan)
    return plan


def make_plans(scheme: str, profile: Profile, costs: Costs, options: dict[str, Any] | None = None) -> list[Plan]:
    """Return the plan of `scheme` and, after it, others worth trying where its prediction may be wrong."""
    entry = schemes[scheme]
    if entry.worth_trying is None:
        return [make_plan(scheme, profile, costs, options)]
    plans = entry.worth_trying(profile, costs, entry.options(options or {}))
    for plan in plans:
        check_capabilities(plan)
    return plans


def check_memory(plan: Plan, memory: Memory) -> None:
    """Raise ConfigError when a lane's reducer would take elements out of a memory that keeps more than the rest."""
    for _, lane in plan.lanes():
        collective = collectives.build(lane.collective)
        if isinstance(collective, Reducer) and collective.edits_memory and not memory.keeps_rest:
            raise ConfigError(
                f"scheme={plan.scheme} with memory={memory.name}: {collective.name} decides on the way what is sent, "
                "which this memory cannot follow; use memory=residual"
            )


def check_capabilities(plan: Plan) -> None:
    """Raise ConfigError when a lane's collective cannot carry what its compressors produce.

    Payloads that are added on the way must all be of one kind; gathered ones may have dense tensors beside them.
    """
    for bucket in plan.buckets:
        for lane in bucket.lanes:
            collective = collectives.build(lane.collective)
            specs = sorted({segment.compressor for segment in lane.segments if segment.compressor is not None})
            if isinstance(collective, Reducer):
                _check_reducer(plan.scheme, collective, lane)
            for spec in specs:
                if collective.additive_only and not build(spec).additive:
                    raise ConfigError(
                        f"scheme={plan.scheme} with compressor={spec}: {collective.name} adds payloads on the way, "
                        f"which {spec} payloads do not allow; choose scheme=per_tensor, or compressor=fp16"
                    )
            dense = any(segment.dense for segment in lane.segments)
            if len(specs) > 1 or (collective.additive_only and specs and dense):
                mixed = ", ".join([*specs, "dense"] if dense else specs)
                raise ConfigError(
                    f"scheme={plan.scheme}: one {collective.name} message cannot mix {mixed}; give each its own lane"
                )
            double = [n for s in lane.segments if not s.dense for n in s.tensors if plan.by_name[n].dtype == "float64"]
            if double:
                raise ConfigError(
                    f"scheme={plan.scheme} would send parameter {double[0]}, which is float64, compressed as float32; "
                    "convert it with .float(), or choose scheme=ddp"
                )
            _check_indices(plan, lane)


def _check_indices(plan: Plan, lane: Lane) -> None:
    """Raise ConfigError when a lane's compressed elements are more than its indices can address."""
    names = [name for segment in lane.segments if not segment.dense for name in segment.tensors]
    sizes = {name: plan.by_name[name].numel for name in names}
    if sum(sizes.values()) <= MAX_INDEX:
        return
    largest = max(sizes, key=sizes.__getitem__)
    way_out = "choose a scheme with smaller buckets, such as scheme=per_tensor"
    if sizes[largest] > MAX_INDEX:
        way_out = f"parameter {largest} alone has more, so choose scheme=ddp"
    raise ConfigError(
        f"scheme={plan.scheme} puts {sum(sizes.values())} compressed elements into one message, but indices have 32 "
        f"bits (at most {MAX_INDEX}); {way_out}"
    )


def _check_reducer(scheme: str, collective: Reducer, lane: Lane) -> None:
    """A reducer takes one vector: segments that are all compressed, on the device, by a compressor it can follow."""
    for segment in lane.segments:
        if segment.compressor is None:
            raise ConfigError(
                f"scheme={scheme}: {collective.name} adds up selected elements, beside which nothing dense "
                "can travel; give dense tensors an all_reduce of their own"
            )
        if segment.placement == "host":
            raise ConfigError(
                f"scheme={scheme}: {collective.name} works on the device, so nothing can be placed on the host"
            )
        compressor = build(segment.compressor)
        if collective.quantizes and (compressor.name not in collective.rules or compressor.rounds > 1):
            raise ConfigError(
                f"scheme={scheme} with compressor={segment.compressor}: {collective.name} takes "
                f"{' or '.join(collective.rules)}, each rank for itself; use compressor={collective.rules[-1]}, or "
                f"scheme=per_tensor compressor={segment.compressor}"
            )
        if collective.selects and compressor.name not in collective.rules:
            raise ConfigError(
                f"scheme={scheme} with compressor={segment.compressor}: {collective.name} selects by itself; "
                f"use compressor={collective.rules[0]}, or scheme=per_tensor compressor={segment.compressor}"
            )
        if not collective.selects and (not compressor.sparse or compressor.additive):
            raise ConfigError(
                f"scheme={scheme} with compressor={segment.compressor}: {collective.name} adds up selected elements, "
                f"which {compressor.name} does not send; use compressor=topk"
            )
