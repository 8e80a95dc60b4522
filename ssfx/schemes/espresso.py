"""Espresso: every tensor is a message of its own, and a search over the whole timeline decides how each is sent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Literal

from ssfx.collectives import Load
from ssfx.compressors import build
from ssfx.core.errors import ConfigError
from ssfx.core.lazy import numpy as np
from ssfx.planning.costs import Costs
from ssfx.planning.plan import Bucket, Lane, Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.base import scheme
from ssfx.schemes.carrier import Carrier, dense_carrier, keeps_fraction, sparse_carrier
from ssfx.schemes.search.byte_groups import Group, dtype_profiles, units
from ssfx.schemes.search.contiguous_groups import ProfiledOptions
from ssfx.schemes.search.espresso_search import EspressoTimeline, EspressoWork, choose_host, choose_options
from ssfx.schemes.search.guarded import Sketch, best_sketch
from ssfx.simulator.pricing.groups import GroupPrices, Way
from ssfx.simulator.pricing.timeline import exchange_s

if TYPE_CHECKING:
    from ssfx.schemes.search.espresso_search import Array, Ints

DIVISIBLE = "a2a_ag"
OPTIONS = ("gpu_ag", "gpu_div", "cpu_ag")
COMPRESS_FROM = 1 << 20
DIVIDE_FROM = 1 << 23
"""The sizes in elements from which on the authors' simulator compresses once, and twice, behind PCIe."""
FEW = 4
"""Compressed tensors that the guarded rule tries to leave dense, one by one."""


@dataclass(frozen=True, kw_only=True)
class EspressoOptions(ProfiledOptions):
    """options: what a tensor may be besides a dense all-reduce, joined by "+" (null: all that the compressor allows).

    gpu_ag compresses on the device and sends one collective; gpu_div exchanges and selects shard by shard (a2a_ag);
    cpu_ag, to which either may change, compresses on the host. option_rule "threshold" lets only the size say which of
    the first two a tensor may be, as the authors' simulator does. rule "paper" is what the search finds on its own
    timeline; "guarded" compares it with every tensor dense, with every tensor compressed, and with nothing on the host,
    and takes the least price. max_offload_states: how many host placements are
    compared one by one.
    """

    options: str | None = None
    rule: Literal["guarded", "paper"] = "guarded"
    option_rule: Literal["search", "threshold"] = "search"
    max_offload_states: Annotated[int, 1] = 100_000

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.options is None:
            return
        named = self.options.split("+")
        if "cpu_div" in named:
            raise ValueError("a2a_ag keeps what it drops on the device, so options=cpu_div cannot run; use cpu_ag")
        if wrong := set(named) - set(OPTIONS):
            raise ValueError(f"options has no {min(wrong)!r}; join some of {', '.join(OPTIONS)} by +")
        for needed, condition, given in (
            ("gpu_ag", named == ["cpu_ag"], "options=cpu_ag"),
            ("gpu_ag", self.sizes != "fixed" and "cpu_ag" not in named, f"sizes={self.sizes}"),
            ("cpu_ag", self.max_offload_states != _default("max_offload_states"), "max_offload_states"),
        ):
            if condition and needed not in named:
                raise ValueError(f"{given} has no effect without {needed}; drop it or add {needed} to options")


def _default(name: str) -> object:
    return next(f.default for f in fields(EspressoOptions) if f.name == name)


@scheme(
    "espresso",
    summary="no fusion; a search over the timeline chooses per tensor: dense, compressed, divided, on the host",
    source="Espresso, EuroSys 2023, Algorithms 1 and 2; D-51",
    defaults=EspressoOptions(),
    fusion_unit="tensor",
    collectives=("a2a_ag", "all_gather", "all_gather_v", "all_reduce"),
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
    carrier = sparse_carrier("espresso", options, costs.world_size)
    order = {spec.name: i for i, spec in enumerate(profile.tensors)}
    groups = [group for part in dtype_profiles(profile) for group in units(part.tensors)]
    groups.sort(key=lambda group: order[group[-1].name])
    if carrier.dense:
        return _plan(profile, costs, [_lane(group, "none", carrier) for group in groups], range(len(groups)))

    ready = np.cumsum(profile.ready_gap_s)[[order[group[-1].name] for group in groups]]
    gap_s = np.diff(ready, prepend=0.0)
    numel = np.array([sum(spec.numel for spec in group) for group in groups])
    names = ["none", *(name for name in _allowed(options) if name != "cpu_ag")]
    works = _works(groups, names, carrier, costs)
    if options.option_rule == "threshold":
        works = [_restricted(work, name, numel) for name, work in zip(names, works, strict=True)]
    chosen = choose_options(gap_s, numel, works)
    timeline = EspressoTimeline(gap_s, EspressoWork(*(_pick(works, chosen, f.name) for f in fields(EspressoWork))))
    movable = _equal_tensors(numel, chosen, timeline.work.host) if "cpu_ag" in _allowed(options) else []
    on_host, exact = choose_host(timeline, movable, options.max_offload_states)

    counted = {"paper": ["cpu_ag" if moved else names[n] for moved, n in zip(on_host, chosen, strict=True)]}
    if options.rule == "guarded":
        counted["guarded, nothing on the host"] = [names[n] for n in chosen]
        counted["guarded, nothing compressed"] = ["none"] * len(groups)
        counted.update(_largest(groups, _allowed(options)))
        packed = [i for i, name in enumerate(counted["paper"]) if name != "none"]
        for i in packed[:FEW]:
            counted[f"guarded, without compressing {groups[i][0].name}"] = [
                "none" if at == i else name for at, name in enumerate(counted["paper"])
            ]
    search = "every placement considered" if exact else "one group of equal tensors after another"

    ways = [_way(name, carrier) for name in ("none", *OPTIONS)]
    numbers = {name: number for number, name in enumerate(("none", *OPTIONS))}
    prices = GroupPrices(profile, costs, groups)

    def sketch(label: str, labels: list[str]) -> Sketch:
        moved = np.array([one == "cpu_ag" for one in labels])
        ready_s = timeline.ready_s(moved) if label in ("paper", "guarded, nothing on the host") else ready
        launched = np.lexsort((np.arange(len(groups)), ready_s))

        def made() -> Plan:
            lanes = [_lane(group, name, carrier) for group, name in zip(groups, labels, strict=True)]
            counts = ", ".join(f"{labels.count(name)} {name}" for name in ("none", *OPTIONS) if name in labels)
            notes = (("options", counts), ("host", search if moved.any() else "nothing moved"))
            return _plan(profile, costs, lanes, launched.tolist(), notes)

        chosen = np.array([numbers[name] for name in labels])
        price_s = prices.total_s(ways, chosen, np.argsort(launched), on_the_way=True)
        return Sketch("" if label == "paper" else label, price_s, made)

    return best_sketch(sketch(label, labels) for label, labels in counted.items())


def _largest(groups: list[Group], names: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield options of all groups that no cost decides: one, four ... all of the largest have one of `names`."""
    numel = [sum(spec.numel for spec in group) for group in groups]
    order = sorted((i for i, n in enumerate(numel) if n), key=lambda i: (-numel[i], i))
    counts = [n for n in (4**power for power in range(len(order).bit_length())) if n < len(order)]
    for name in names:
        for n in (*counts, len(order)):
            first = set(order[:n])
            yield f"guarded, the {n} largest {name}", [name if i in first else "none" for i in range(len(groups))]


def _allowed(options: EspressoOptions) -> list[str]:
    sparse = build(options.compressor).sparse
    if options.options is None:
        return [name for name in OPTIONS if sparse or name != "gpu_div"]
    named = options.options.split("+")
    if "gpu_div" in named and not sparse:
        raise ConfigError(
            f"scheme=espresso with compressor={options.compressor}: options=gpu_div adds up selected elements, which "
            f"{options.compressor} does not send; use compressor=topk, or options=gpu_ag+cpu_ag"
        )
    return [name for name in OPTIONS if name in named]


def _works(groups: list[Group], names: list[str], carrier: Carrier, costs: Costs) -> list[EspressoWork]:
    """Return for each option what the timeline charges for sending every group alone, there or moved to the host."""
    assert carrier.compressor is not None
    compressor = build(carrier.compressor)
    dense, packed = [], []
    for group in groups:
        layout = compressor.layout_of([spec.shape for spec in group], carrier.density)
        dense.append(Load.dense(sum(spec.nbytes for spec in group), costs.world_size))
        packed.append(Load(sum(spec.numel for spec in group), layout.nbytes, layout.values, costs.world_size))
    numel = np.array([load.numel for load in packed], dtype=float)
    decode, gathered = costs.decode.many(numel), _exchange_s(carrier.collective, packed, costs)
    works = []
    for name in names:
        if name == "none":
            network = _exchange_s("all_reduce", dense, costs)
            works.append(EspressoWork(np.zeros(len(groups)), network, np.full(len(groups), np.inf), network))
        else:
            network = gathered if name == "gpu_ag" else _exchange_s(DIVISIBLE, packed, costs)
            works.append(
                EspressoWork(costs.encode.many(numel), network + decode, costs.host.many(numel), gathered + decode)
            )
    return works


def _exchange_s(collective: str, loads: list[Load], costs: Costs) -> Array:
    seconds = {load: exchange_s(collective, load, costs) for load in set(loads)}
    return np.array([seconds[load] for load in loads])


def _restricted(work: EspressoWork, name: str, numel: Ints) -> EspressoWork:
    """Return the work with an infinite message where the size of a tensor rules the option out."""
    bounds = {"none": (0, np.inf), "gpu_ag": (COMPRESS_FROM, DIVIDE_FROM), "gpu_div": (DIVIDE_FROM, np.inf)}
    low, high = bounds[name]
    return replace(work, network=np.where((numel >= low) & (numel < high), work.network, np.inf))


def _pick(works: list[EspressoWork], chosen: Ints, part: str) -> Array:
    picked: Array = np.stack([getattr(work, part) for work in works])[chosen, np.arange(len(chosen))]
    return picked


def _equal_tensors(numel: Ints, chosen: Ints, host_s: Array) -> list[Ints]:
    """Return the compressed tensors that the host can take, in groups of equal size and option, in backward order."""
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for i in np.flatnonzero((chosen > 0) & np.isfinite(host_s)).tolist():
        groups[int(numel[i]), int(chosen[i])].append(i)
    return [np.array(group) for group in groups.values()]


def _way(label: str, carrier: Carrier) -> Way:
    if label == "none":
        return Way("all_reduce")
    collective = DIVISIBLE if label == "gpu_div" else carrier.collective
    return Way(collective, carrier.compressor, carrier.density, label == "cpu_ag")


def _lane(group: Group, label: str, carrier: Carrier) -> Lane:
    if label == "none" or carrier.dense:
        return dense_carrier("espresso").lane([group])
    segment = carrier.segment(group)
    if label == "cpu_ag":
        segment = replace(segment, placement="host")
    return Lane(DIVISIBLE if label == "gpu_div" else carrier.collective, (segment,))


def _plan(
    profile: Profile, costs: Costs, lanes: list[Lane], order: Iterable[int], notes: tuple[tuple[str, str], ...] = ()
) -> Plan:
    numel = {spec.name: spec.numel for spec in profile.tensors}
    launch = tuple((i, 0) for i in order if any(numel[name] for name in lanes[i].tensors))
    buckets = tuple(Bucket((lane,)) for lane in lanes)
    return Plan("espresso", costs.world_size, profile.tensors, buckets, launch, decode="comm_stream", notes=notes)
