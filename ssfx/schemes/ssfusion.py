"""SSFusion: small tensors of a fusion buffer travel dense; large ones are compressed one by one, harder to make up.

Four variants of one planner: naive, -O (some compression moves to the host), -I (dense tensors are all-reduced while
the rest is still being compressed), and both. Source: D-52.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from ssfx.compressors import build
from ssfx.core.errors import ConfigError
from ssfx.core.lazy import numpy as np
from ssfx.planning.costs import Costs
from ssfx.planning.plan import Bucket, Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.base import Planner, scheme
from ssfx.schemes.carrier import Carrier, dense_carrier, keeps_fraction, sparse_carrier
from ssfx.schemes.ddp import ddp_buckets
from ssfx.schemes.search.byte_groups import dtype_profiles, plan_per_dtype
from ssfx.schemes.search.guarded import Priced, least, noted
from ssfx.schemes.search.shared import shared
from ssfx.schemes.search.ssfusion_buffers import BufferPlanner, Knobs, Known
from ssfx.schemes.search.ssfusion_options import SsfusionOptions
from ssfx.schemes.search.ssfusion_prices import Buffer, flow_of
from ssfx.simulator.pricing.flow import Backward
from ssfx.simulator.pricing.timeline import evaluate

COUNTS = (1, 2, 4, 8, 16)
"""Numbers of even buffers that are tried beside the best ones for joint compression."""
REFINED, SMALL = 3, 60
"""How many of the best plans are tried with the host and with dense buffers; more of models below so many tensors."""
KEEPS: tuple[Literal["rule", "budget", "none"], ...] = ("rule", "budget", "none")


def _variant(name: str, summary: str, defaults: SsfusionOptions) -> Callable[[Planner], Planner]:
    return scheme(
        name,
        summary=summary,
        source="SSFusion, ICDE 2026, section IV; D-52",
        defaults=defaults,
        fusion_unit="large tensor",
        collectives=("all_gather", "all_gather_v", "all_reduce"),
        compressors="selecting",
        offload=defaults.offload,
        profiled=True,
    )


@_variant("ssfusion_naive", "small tensors dense, large ones compressed one by one, one gather", SsfusionOptions())
@_variant("ssfusion_o", "SSFusion with part of the compression on the host", SsfusionOptions(offload=True))
@_variant("ssfusion_i", "SSFusion with dense tensors all-reduced early", SsfusionOptions(interleave=True))
@_variant(
    "ssfusion_oi", "SSFusion with host offload and early all-reduce", SsfusionOptions(offload=True, interleave=True)
)
def plan_ssfusion(profile: Profile, costs: Costs, options: SsfusionOptions) -> Plan:
    """Return the plan of the variant that `options` describes; its notes hold the predicted time and every buffer.

    One rank alone, or density 1, gives PyTorch DDP's dense buckets.
    """
    name = options.variant
    if build(options.compressor).additive or not keeps_fraction(options.compressor):
        raise ConfigError(
            f"scheme={name} gathers selected elements next to dense tensors, which compressor={options.compressor} "
            "does not produce; choose compressor=topk, or scheme=per_tensor"
        )
    carrier = sparse_carrier(name, options, costs.world_size)
    if carrier.dense:
        return plan_per_dtype(name, profile, costs.world_size, lambda part: ddp_buckets(part, carrier))
    family = Family(profile, costs, carrier, options)
    if options.rule != "guarded":
        first = family.tried("", Knobs(), options)
        found = noted(Priced("", family.plan(name, first), first.price_s), 0.0)
    else:
        found = _guarded(profile, costs, options, family)
    notes = [(f"bucket {b}", _describe(bucket)) for b, bucket in enumerate(found.buckets)]
    return replace(found, notes=(*found.notes, *notes))


@dataclass(frozen=True)
class Tried:
    """What one variant with some knobs gives: a planner and its buffers for each dtype, and the price."""

    label: str
    parts: tuple[tuple[BufferPlanner, list[Buffer]], ...]
    price_s: float
    key: object
    """Equal where all buffers are sent alike."""


class Family:
    """All that one profile, its costs and a compressor give: plans as buffers, priced without making any Plan."""

    def __init__(self, profile: Profile, costs: Costs, carrier: Carrier, options: SsfusionOptions) -> None:
        self.profile, self.costs, self.carrier = profile, costs, carrier
        self.dtypes = dtype_profiles(profile)
        order = {spec.name: i for i, spec in enumerate(profile.tensors)}
        self.positions = [np.array([order[spec.name] for spec in part.tensors]) for part in self.dtypes]
        late = options.late_dense_index
        common = replace(options, offload=False, interleave=False, separate="local", dense_escape=False)
        self.known = shared(
            profile, costs, (carrier, common), lambda: [Known(part, costs, carrier, late) for part in self.dtypes]
        )
        self._tried: dict[tuple[Knobs, SsfusionOptions], Tried]
        self._tried = shared(profile, costs, (carrier, common, "tried"), dict)
        self.backward = Backward(profile, costs)

    def tried(self, label: str, knobs: Knobs, options: SsfusionOptions) -> Tried:
        """Return what `options` give with `knobs`."""
        if (knobs, options) not in self._tried:
            self._tried[knobs, options] = self._priced(knobs, options)
        return replace(self._tried[knobs, options], label=label)

    def _priced(self, knobs: Knobs, options: SsfusionOptions) -> Tried:
        parts, prices = [], []
        for part, known in zip(self.dtypes, self.known, strict=True):
            planner = BufferPlanner(part, self.costs, self.carrier, options, knobs, known)
            buffers = planner.buffers()
            parts.append((planner, buffers))
            prices.append([known.prices.of(buffer) for buffer in buffers])
        flow = flow_of(zip(self.positions, prices, strict=True), len(self.profile.tensors), self.costs)
        key = tuple(one.key for row in prices for one in row)
        return Tried("", tuple(parts), self.backward.total_s(flow), key)

    def plan(self, name: str, tried: Tried) -> Plan:
        """Return the Plan of what was tried."""
        buffers = iter(tried.parts)

        def buckets(_: Profile) -> list[Bucket]:
            planner, chosen = next(buffers)
            return [planner.bucket(buffer) for buffer in chosen]

        return plan_per_dtype(name, self.profile, self.costs.world_size, buckets)


def _guarded(profile: Profile, costs: Costs, options: SsfusionOptions, family: Family) -> Plan:
    """Return the plan with the least price: with other buffers, with and without each extension, or dense.

    Buffers and what stays dense in them are chosen first, without the host; then how much of it moves to the host, and
    which buffers are better off dense.
    """
    printed = replace(options, rule="paper")
    plain = replace(printed, offload=False)
    variants = [plain] if not options.interleave else [plain, replace(plain, interleave=False, separate="local")]
    counts = (0, *COUNTS) if options.buffers == "cupcake" else (0,)
    choices = {
        (index, knobs): (variant, _label(index, knobs))
        for index, variant in enumerate(variants)
        for knobs in (Knobs(count, keep) for count in counts for keep in KEEPS)
        if index == 0 or knobs.keep != "none"  # which leaves nothing to reduce early
    }
    found: dict[object, Tried] = {}  # of those that are sent alike the first

    def add(label: str, knobs: Knobs, variant: SsfusionOptions) -> None:
        one = family.tried(label, knobs, variant)
        found.setdefault(one.key, one)

    add("", Knobs(), printed)
    for (_, knobs), (variant, label) in choices.items():
        add(label, knobs, variant)
    before = len(found)
    by_label = {label: (knobs, variant) for (_, knobs), (variant, label) in choices.items()}
    best = sorted((one for one in found.values() if one.label in by_label), key=lambda one: one.price_s)
    for one in best[: max(REFINED, REFINED * SMALL // len(profile.tensors))]:
        knobs, variant = by_label[one.label]
        for offload in dict.fromkeys((False, options.offload)):
            moved = replace(variant, offload=offload)
            host = ", part of it on the host" if offload else ""
            if offload:
                add(f"{one.label}{host}", knobs, moved)
            add(f"{one.label}{host}, some buffers dense", knobs, replace(moved, dense_escape=True))
        add(f"{one.label}, everything dense", replace(knobs, keep="all"), variant)
    every = list(found.values())
    tried: list[Tried | Priced] = [*every[:before], _as_ddp(profile, costs), *every[before:]]
    chosen = least(tried)
    if isinstance(chosen, Tried):
        chosen = Priced(chosen.label, family.plan(options.variant, chosen), chosen.price_s)
    return noted(replace(chosen, plan=replace(chosen.plan, scheme=options.variant)), every[0].price_s)


def _as_ddp(profile: Profile, costs: Costs) -> Priced:
    """Return PyTorch DDP's dense plan, made once for all networks and priced once for all variants."""
    dense, label = dense_carrier("ddp", None), "guarded, everything dense in PyTorch DDP's buckets"
    plan = shared(
        profile, None, (label, costs.world_size),
        lambda: plan_per_dtype("ddp", profile, costs.world_size, lambda part: ddp_buckets(part, dense)),
    )  # fmt: skip
    return shared(profile, costs, label, lambda: Priced(label, plan, evaluate(plan, profile, costs).total_s))


def _label(index: int, knobs: Knobs) -> str:
    """Return in words how a plan came about, in which its label differs from all others."""
    buffers = f", {knobs.buffers} even buffers" if knobs.buffers else ""
    keep = {"rule": "", "budget": ", as much dense as the budget allows", "none": ", nothing dense", "all": ""}
    return f"guarded{', nothing reduced early' if index else ''}{buffers}{keep[knobs.keep]}"


def _describe(bucket: Bucket) -> str:
    reduced = sum(len(lane.tensors) for lane in bucket.lanes if lane.collective == "all_reduce")
    segments = [segment for lane in bucket.lanes for segment in lane.segments]
    packed = [segment for segment in segments if not segment.dense and segment.density < 1]
    host = sum(segment.placement == "host" for segment in packed)
    density = f" at density {packed[0].density:.4g}" if packed else ""
    dense = sum(len(segment.tensors) for segment in segments) - len(packed)
    return f"{dense} dense ({reduced} all-reduced), {len(packed)} compressed{density} ({host} on the host)"
