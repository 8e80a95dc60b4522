"""Espresso: every tensor is a message of its own, and a search over the whole timeline decides how each is sent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Literal

from ssfx.collectives import Load
from ssfx.compressors import build
from ssfx.core.errors import ConfigError
from ssfx.core.lazy import numpy as np
from ssfx.planning.costs import Costs
from ssfx.planning.plan import Bucket, Lane, Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.base import scheme
from ssfx.schemes.search.byte_groups import Group, dtype_profiles, units
from ssfx.schemes.search.cheapest_plan import least, noted, priced
from ssfx.schemes.search.contiguous_groups import ProfiledOptions
from ssfx.schemes.search.espresso_search import EspressoTimeline, EspressoWork, choose_host, choose_options
from ssfx.schemes.transport import Transport, dense_transport, keeps_fraction, sparse_transport
from ssfx.simulator.pricing.prices import Prices

if TYPE_CHECKING:
    from ssfx.schemes.search.espresso_search import Array, Ints

DIVISIBLE = "a2a_ag"
OPTIONS = ("gpu_ag", "gpu_div", "cpu_ag")
"""What a tensor may be besides "none", a dense all-reduce: compressed on the device and gathered, exchanged and
selected shard by shard, or compressed on the host."""
FEW = 4
"""Compressed tensors that the guarded rule tries to leave dense, one by one."""
MOST_STATES = 100_000
"""Host placements that are compared one by one."""


@dataclass(frozen=True, kw_only=True)
class EspressoOptions(ProfiledOptions):
    """rule "paper" is what the search finds on its own timeline; "guarded" compares it with every tensor dense, with
    every tensor compressed, and with nothing on the host, and takes the least price.
    """

    rule: Literal["guarded", "paper"] = "guarded"


@scheme(
    "espresso",
    summary="no fusion; a search over the timeline chooses per tensor: dense, compressed, divided, on the host",
    source="Espresso, EuroSys 2023, Algorithms 1 and 2; D-51",
    defaults=EspressoOptions(),
    fusion_unit="tensor",
    collectives=("a2a_ag", "all_gather", "all_reduce"),
    compressors="selecting",
    offload=True,
    profiled=True,
)
def plan_espresso(profile: Profile, costs: Costs, options: EspressoOptions) -> Plan:
    """Return the plan with one message per tensor, launched in the order in which they become ready.

    All dtypes share one timeline. Its notes hold the predicted time, how many tensors got which option, and how the
    host was searched.
    """
    if build(options.compressor).additive or not keeps_fraction(options.compressor):
        raise ConfigError(
            f"scheme=espresso weighs sending selected elements against sending all, which compressor="
            f"{options.compressor} does not offer; choose compressor=topk, or scheme=hipress"
        )
    transport = sparse_transport(options, costs.world_size)
    order = {spec.name: i for i, spec in enumerate(profile.tensors)}
    groups = [group for part in dtype_profiles(profile) for group in units(part.tensors)]
    groups.sort(key=lambda group: order[group[-1].name])
    at = np.cumsum(profile.ready_gap_s)[[order[group[-1].name] for group in groups]]
    gap_s, numel = np.diff(at, prepend=0.0), np.array([sum(spec.numel for spec in group) for group in groups])

    def plan(names: list[str], ready_s: Array, host: str = "") -> Plan:
        lanes = [_lane(group, name, transport) for group, name in zip(groups, names, strict=True)]
        launch = [(int(i), 0) for i in np.lexsort((np.arange(len(groups)), ready_s)) if numel[i]]
        counts = ", ".join(f"{names.count(name)} {name}" for name in ("none", *OPTIONS) if name in names)
        notes = (("options", counts), ("host", host if "cpu_ag" in names else "nothing moved")) if host else ()
        buckets = tuple(Bucket((lane,)) for lane in lanes)
        return Plan(
            "espresso", costs.world_size, profile.tensors, buckets, tuple(launch), decode="comm_stream", notes=notes
        )

    if transport.dense:
        return plan(["none"] * len(groups), np.arange(len(groups), dtype=float))
    device = [name for name in OPTIONS[:2] if name != "gpu_div" or build(options.compressor).sparse]
    works = _works(groups, device, transport, costs)
    chosen = choose_options(gap_s, numel, works)
    timeline = EspressoTimeline(gap_s, EspressoWork(*(_pick(works, chosen, f.name) for f in fields(EspressoWork))))
    on_host, exact = choose_host(timeline, _equal_tensors(numel, chosen, timeline.work.host), MOST_STATES)
    search = "every placement considered" if exact else "one group of equal tensors after another"

    here = [("none", *device)[number] for number in chosen]
    paper = ["cpu_ag" if moved else name for moved, name in zip(on_host, here, strict=True)]
    plans = [("", plan(paper, timeline.ready_s(on_host), search))]
    if options.rule == "guarded":
        stay = timeline.ready_s(np.zeros(len(groups), dtype=bool))
        plans.append(("guarded, nothing on the host", plan(here, stay, search)))
        plans.append(("guarded, nothing compressed", plan(["none"] * len(groups), at, search)))
        for name in (*device, "cpu_ag"):
            for n, names in _largest(numel, name):
                plans.append((f"guarded, the {n} largest {name}", plan(names, at, search)))
        for i in [i for i, name in enumerate(paper) if name != "none"][:FEW]:
            less = [*paper[:i], "none", *paper[i + 1 :]]
            plans.append((f"guarded, without compressing {groups[i][0].name}", plan(less, at, search)))
    found = priced(plans, profile, costs)
    return noted(least(found), found[0].price_s)


def _largest(numel: Ints, name: str) -> Iterator[tuple[int, list[str]]]:
    """Yield options that no cost decides: one, four ... all of the largest tensors have `name`."""
    order = [i for i in np.lexsort((np.arange(len(numel)), -numel)).tolist() if numel[i]]
    counts = [n for n in (4**power for power in range(len(order).bit_length())) if n < len(order)]
    for n in (*counts, len(order)):
        first = set(order[:n])
        yield n, [name if i in first else "none" for i in range(len(numel))]


def _works(groups: list[Group], device: list[str], transport: Transport, costs: Costs) -> list[EspressoWork]:
    """Return what the timeline charges for sending every group alone: dense, by each option, and from the host."""
    compressor, ranks, free = build(str(transport.compressor)), costs.world_size, np.zeros(len(groups))
    layouts = [compressor.layout_of([spec.shape for spec in group], transport.density) for group in groups]
    numel = np.array([sum(spec.numel for spec in group) for group in groups], dtype=float)
    loads = [Load(int(n), one.nbytes, one.values, ranks) for n, one in zip(numel, layouts, strict=True)]
    prices = Prices(costs)

    def exchange_s(collective: str) -> Array:
        return np.array([prices.load_s(collective, transport.compressor, load) for load in loads])

    whole = [Load.dense(sum(spec.nbytes for spec in one), ranks) for one in groups]
    dense = np.array([prices.load_s("all_reduce", None, load) for load in whole])
    encode, decode, host = costs.encode.many(numel), costs.decode.many(numel), costs.host.many(numel)
    gathered = exchange_s(transport.collective)
    works = [EspressoWork(free, dense, free + np.inf, dense)]
    for name in device:
        network = gathered if name == "gpu_ag" else exchange_s(DIVISIBLE)
        works.append(EspressoWork(encode, network + decode, host, gathered + decode))
    return works


def _pick(works: list[EspressoWork], chosen: Ints, part: str) -> Array:
    picked: Array = np.stack([getattr(work, part) for work in works])[chosen, np.arange(len(chosen))]
    return picked


def _equal_tensors(numel: Ints, chosen: Ints, host_s: Array) -> list[Ints]:
    """Return the compressed tensors that the host can take, in groups of equal size and option, in backward order."""
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for i in np.flatnonzero((chosen > 0) & np.isfinite(host_s)).tolist():
        groups[int(numel[i]), int(chosen[i])].append(i)
    return [np.array(group) for group in groups.values()]


def _lane(group: Group, name: str, transport: Transport) -> Lane:
    if name == "none" or transport.dense:
        return dense_transport("espresso").lane([group])
    segment = transport.segment(group)
    if name == "cpu_ag":
        segment = replace(segment, placement="host")
    return Lane(DIVISIBLE if name == "gpu_div" else transport.collective, (segment,))
