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
from ssfx.planning.costs import Costs
from ssfx.planning.plan import Bucket, Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.base import scheme
from ssfx.schemes.ddp import ddp_buckets
from ssfx.schemes.search.byte_groups import plan_per_dtype
from ssfx.schemes.search.cheapest_plan import Priced, least, noted
from ssfx.schemes.search.contiguous_groups import ProfiledOptions
from ssfx.schemes.search.shared import shared
from ssfx.schemes.search.ssfusion_buffers import BufferPlanner, BufferRules
from ssfx.schemes.transport import dense_transport, keeps_fraction, sparse_transport
from ssfx.simulator.pricing.timeline import StepPrices

COUNTS = (1, 2, 4, 8, 16)
"""Numbers of even buffers that are tried beside the best ones for joint compression."""
REFINED, SMALL = 3, 60
"""How many of the best plans are tried with the host and with dense buffers; more of models below so many tensors."""
KEEPS: tuple[Literal["rule", "budget", "none"], ...] = ("rule", "budget", "none")


@dataclass(frozen=True, kw_only=True)
class SsfusionOptions(ProfiledOptions):
    """rule: "paper" leaves tensors dense by Eq. 2; "guarded" takes, of the plans that Eq. 2 gives for other buffers,
    with and without each extension, and of PyTorch DDP's dense one, the one with the least price. compensate false
    keeps the density, as the authors' code.
    """

    rule: Literal["guarded", "paper"] = "guarded"
    compensate: bool = True


def _variant(name: str, summary: str, *, offload: bool = False, interleave: bool = False) -> None:
    """Register a variant: with part of the compression on the host, with dense tensors reduced early, with both."""

    def plan(profile: Profile, costs: Costs, options: SsfusionOptions) -> Plan:
        """Return the plan of the variant; its notes hold the predicted time and every buffer."""
        return plan_ssfusion(name, BufferRules(offload, interleave), profile, costs, options)

    scheme(
        name,
        summary=summary,
        source="SSFusion, ICDE 2026, section IV; D-52",
        defaults=SsfusionOptions(),
        fusion_unit="large tensor",
        collectives=("all_gather", "all_reduce"),
        compressors="selecting",
        offload=offload,
        profiled=True,
    )(plan)


_variant("ssfusion_naive", "small tensors dense, large ones compressed one by one, one gather")
_variant("ssfusion_o", "SSFusion with part of the compression on the host", offload=True)
_variant("ssfusion_i", "SSFusion with dense tensors all-reduced early", interleave=True)
_variant("ssfusion_oi", "SSFusion with host offload and early all-reduce", offload=True, interleave=True)


def plan_ssfusion(name: str, own: BufferRules, profile: Profile, costs: Costs, options: SsfusionOptions) -> Plan:
    """Return the plan of a variant with the extensions that `own` has; its notes hold time and every buffer.

    One rank alone, or density 1, gives PyTorch DDP's dense buckets.
    """
    if build(options.compressor).additive or not keeps_fraction(options.compressor):
        raise ConfigError(
            f"scheme={name} gathers selected elements next to dense tensors, which compressor={options.compressor} "
            "does not produce; choose compressor=topk, or scheme=per_tensor"
        )
    transport = sparse_transport(options, costs.world_size)
    if transport.dense:
        return plan_per_dtype(name, profile, costs.world_size, lambda part: ddp_buckets(part, transport))
    known = StepPrices(profile, costs)
    key = ("ssfusion", transport, options.compensate)

    def plan(rules: BufferRules) -> Plan:
        def buckets(part: Profile) -> list[Bucket]:
            planner = shared(part, costs, key, lambda: BufferPlanner(part, costs, transport, options.compensate))
            return planner.buckets(rules)

        return plan_per_dtype(name, profile, costs.world_size, buckets)

    def tried(label: str, rules: BufferRules) -> Priced:
        def made() -> Priced:
            one = plan(rules)
            return Priced("", one, known.total_s(one))

        return replace(shared(profile, costs, (key, rules), made), label=label)

    found = [tried("", own)]
    if options.rule == "guarded":
        found = _guarded(found[0], own, len(profile.tensors), tried)
        as_ddp = plan_per_dtype(
            "ddp", profile, costs.world_size, lambda part: ddp_buckets(part, dense_transport("ddp"))
        )
        found.append(Priced("guarded, everything dense in PyTorch DDP's buckets", as_ddp, known.total_s(as_ddp)))
    best = noted(least(found), found[0].price_s if options.rule == "guarded" else 0.0)
    notes = [(f"bucket {b}", _describe(bucket)) for b, bucket in enumerate(best.buckets)]
    return replace(best, scheme=name, notes=(*best.notes, *notes))


def _guarded(
    first: Priced, own: BufferRules, tensors: int, tried: Callable[[str, BufferRules], Priced]
) -> list[Priced]:
    """Return plans that differ, `first` as the first: other buffers, with and without each extension, or dense.

    Buffers and what stays dense in them are chosen first, without the host; then how much of it moves to the host, and
    which buffers are better off dense.
    """
    found: dict[object, Priced] = {first.plan.buckets: first}  # of those that are sent alike the first
    rules_of: dict[str, BufferRules] = {}

    def add(label: str, rules: BufferRules) -> None:
        one = tried(label, rules)
        found.setdefault(one.plan.buckets, one)

    for early in dict.fromkeys((own.interleave, False)):
        for count in (0, *COUNTS):
            for keep in KEEPS:
                if early or not own.interleave or keep != "none":  # "none" leaves nothing to reduce early
                    label = _label(own.interleave and not early, count, keep)
                    rules_of[label] = BufferRules(interleave=early, buffers=count, keep=keep)
                    add(label, rules_of[label])
    best = sorted((one for one in found.values() if one.label in rules_of), key=lambda one: one.price_s)
    for one in best[: max(REFINED, REFINED * SMALL // tensors)]:
        rules = rules_of[one.label]
        for offload in dict.fromkeys((False, own.offload)):
            host = ", part of it on the host" if offload else ""
            if offload:
                add(f"{one.label}{host}", replace(rules, offload=True))
            add(f"{one.label}{host}, some buffers dense", replace(rules, offload=offload, escape=True))
        add(f"{one.label}, everything dense", replace(rules, keep="all"))
    return list(found.values())


def _label(late: bool, count: int, keep: str) -> str:
    """Return in words how a plan came about, in which its label differs from all others."""
    buffers = f", {count} even buffers" if count else ""
    dense = {"rule": "", "budget": ", as much dense as the budget allows", "none": ", nothing dense"}
    return f"guarded{', nothing reduced early' if late else ''}{buffers}{dense[keep]}"


def _describe(bucket: Bucket) -> str:
    reduced = sum(len(lane.tensors) for lane in bucket.lanes if lane.collective == "all_reduce")
    segments = [segment for lane in bucket.lanes for segment in lane.segments]
    packed = [segment for segment in segments if not segment.dense and segment.density < 1]
    host = sum(segment.placement == "host" for segment in packed)
    density = f" at density {packed[0].density:.4g}" if packed else ""
    dense = sum(len(segment.tensors) for segment in segments) - len(packed)
    return f"{dense} dense ({reduced} all-reduced), {len(packed)} compressed{density} ({host} on the host)"
