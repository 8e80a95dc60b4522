"""Joint vectors: all tensors of the model, or of a bucket, for a collective that the scheme has chosen."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from ssfx.collectives import Reducer, collectives
from ssfx.collectives.pairs import PAIR_BYTES
from ssfx.collectives.primitives import traffic
from ssfx.compressors import build
from ssfx.compressors.base import k_floor
from ssfx.core.errors import ConfigError
from ssfx.planning.costs import Costs
from ssfx.planning.plan import ITEM_BYTES, Bucket, Lane, Plan, Segment
from ssfx.planning.profile import Profile
from ssfx.schemes.base import CompressOptions
from ssfx.schemes.search.byte_groups import (
    BUCKET_CAP_BYTES,
    FIRST_BUCKET_BYTES,
    Group,
    cap_groups,
    joined,
    plan_per_dtype,
    units,
)
from ssfx.schemes.transport import dense_transport, keeps_fraction
from ssfx.simulator.pricing.message_sizes import lane_load


@dataclass(frozen=True, kw_only=True)
class JointOptions(CompressOptions):
    """No options of its own: one vector for the whole model, after backward."""

    compressor: str = "topk"


def joint_plan(
    scheme: str,
    profile: Profile,
    costs: Costs,
    options: JointOptions,
    collective: str,
    *,
    capped: bool = False,
    **also: Any,
) -> Plan:
    """Return the plan that hands the joint vector of each dtype to one compressor call and then to `collective`.

    Its options are those that the scheme has under the same name, and `also`. `capped`: a vector for each of DDP's
    buckets instead. A vector for which this would not send fewer bytes than an all-reduce travels dense, in DDP's
    buckets, and the notes say so (D-29). One rank alone, or density 1 with a compressor that selects, is dense
    throughout.
    ConfigError for an option of the compressor that would have no effect.
    """
    options_there = asdict(collectives[collective].options)
    shared = {name: value for name, value in asdict(options).items() if name in options_there}
    collective = collectives.canonical(collective, shared | also)
    chosen, reducer = build(options.compressor), collectives.build(collective)
    if isinstance(reducer, Reducer) and getattr(chosen.options, "value_dtype", "float32") != "float32":
        raise ConfigError(
            f"scheme={scheme} with compressor={options.compressor}: {reducer.name} sends float32 values; "
            f"use compressor={chosen.name}, or scheme=fused_all compressor={options.compressor}"
        )
    selects = keeps_fraction(options.compressor)
    dense, density = dense_transport(scheme), options.density if selects else 1.0
    compresses = costs.world_size > 1 and not (selects and density == 1)
    notes: list[tuple[str, str]] = []

    def buckets(part: Profile) -> Iterator[Bucket]:
        tensors = units(part.tensors)
        nbytes = [sum(spec.nbytes for spec in group) for group in tensors]
        caps = cap_groups(nbytes, FIRST_BUCKET_BYTES, BUCKET_CAP_BYTES)
        pieces = [joined(tensors[cap.start : cap.stop]) for cap in caps]
        for together in [[piece] for piece in pieces] if capped else [pieces]:
            group = joined(together)
            lane = Lane(collective, (Segment(tuple(spec.name for spec in group), options.compressor, density),))
            excess = _excess(scheme, group, lane, costs.world_size) if compresses else ""
            if excess:
                notes.append(("dense", excess))
            if compresses and not excess and any(spec.numel for spec in group):
                yield Bucket((lane,))
            else:
                yield from (Bucket((dense.lane([piece]),)) for piece in together)

    return replace(plan_per_dtype(scheme, profile, costs.world_size, buckets), notes=tuple(notes))


def _excess(scheme: str, group: Group, lane: Lane, world_size: int) -> str:
    """Return why `lane` is no better than an all-reduce of its tensors, or nothing if it is."""
    if not any(spec.numel for spec in group):
        return ""
    load = lane_load(Plan(scheme, world_size, group, (Bucket((lane,)),), ((0, 0),)), lane)
    collective, item_bytes = collectives.build(lane.collective), ITEM_BYTES[group[0].dtype]
    if collective.variable:  # what is kept on average travels, not the capacity
        kept = k_floor(load.numel, lane.segments[0].density)
        load = replace(load, nbytes=min(load.nbytes, PAIR_BYTES * kept), kept=kept)
    planned = collective.traffic(load).sent_bytes
    ring = traffic("all_reduce", item_bytes * load.numel, world_size, item_bytes=item_bytes).sent_bytes
    whole = isinstance(collective, Reducer) and load.kept >= load.numel
    if planned < ring and not whole:
        return ""
    what = f"{group[0].name} to {group[-1].name}" if len(group) > 1 else group[0].name
    return f"{what}: {collective.name} would send {planned} bytes for {load.kept} elements, an all_reduce {ring}"
