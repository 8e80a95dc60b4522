"""HiPress: a cost formula decides for every gradient whether it is compressed; neighbours share a message."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from ssfx.collectives import collectives
from ssfx.compressors import build
from ssfx.core.lazy import numpy as np
from ssfx.planning.costs import Costs
from ssfx.planning.plan import Bucket, Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.base import scheme
from ssfx.schemes.carrier import Carrier, dense_carrier, sparse_carrier
from ssfx.schemes.search.byte_groups import MIB, Group, plan_per_dtype, units
from ssfx.schemes.search.contiguous_groups import ProfiledOptions
from ssfx.schemes.search.guarded import guarded
from ssfx.schemes.search.hipress_costs import authors, fitted
from ssfx.schemes.search.secopa import Topology, decide


@dataclass(frozen=True, kw_only=True)
class HipressOptions(ProfiledOptions):
    """rule: "paper", SeCoPa, compares costs, those of the `topology` (parameter servers or a ring) with `constants`
    "fitted" to the costs at hand or the "authors"' own; "threshold", as in their example scripts, compresses above
    `compress_min_elems` elements and cuts above `partition_min_elems`; "guarded" takes, of SeCoPa's plan and those that
    compress none, one, two, four ... of the largest tensors, the one with the least price.

    A message is closed when it holds `bulk_bytes` of dense or `sparse_bulk_bytes` of compressed gradients, or when the
    next one would be ready more than `bulk_timeout_s` after its first. sparse_op: how compressed gradients travel; only
    "a2a_ag" has aggregators, as many as there are partitions.
    """

    rule: Literal["guarded", "paper", "threshold"] = "guarded"
    topology: Topology = "PS"
    constants: Literal["fitted", "authors"] = "fitted"
    compress_min_elems: int = 262_144
    partition_min_elems: int = 16_777_216
    bulk_bytes: int = 64 * MIB
    sparse_bulk_bytes: int = MIB
    bulk_timeout_s: float = 5e-3
    sparse_op: Literal["ag", "a2a_ag"] = "ag"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("bulk_bytes", "sparse_bulk_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("compress_min_elems", "partition_min_elems", "bulk_timeout_s"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name):g}")
        self.refuse_idle(
            (self.rule == "threshold", "topology", "rule=paper"),
            (self.rule == "threshold", "constants", "rule=paper"),
            (self.rule != "threshold", "compress_min_elems", "rule=threshold"),
            (self.rule != "threshold", "partition_min_elems", "rule=threshold"),
            (self.sparse_op == "ag", "partition_min_elems", "sparse_op=a2a_ag"),
            (self.sparse_op == "a2a_ag", "sizes", "sparse_op=ag"),
        )
        if self.topology == "RING" and self.sparse_op == "a2a_ag":
            raise ValueError("topology=RING has no aggregators, through which sparse_op=a2a_ag sends; set sparse_op=ag")


class Choice(NamedTuple):
    """What was decided for one gradient; gradients that share a message have equal choices."""

    compress: bool
    aggregators: int = 0


@scheme(
    "hipress",
    summary="a cost formula per gradient decides on compression; small ones share messages",
    source="HiPress, SOSP 2021 (CaSync and SeCoPa); D-50",
    defaults=HipressOptions(),
    fusion_unit="tensor",
    collectives=("a2a_ag", "all_gather", "all_gather_v", "all_reduce"),
    profiled=True,
)
def plan_hipress(profile: Profile, costs: Costs, options: HipressOptions) -> Plan:
    """Return the plan with one compressor call per chosen gradient; its notes hold their number and the time."""
    carrier = sparse_carrier("hipress", options, costs.world_size)

    def made(chosen: HipressOptions) -> Plan:
        def buckets(part: Profile) -> list[Bucket]:
            groups = units(part.tensors)
            choices = _choices(groups, carrier, costs, chosen)
            batches = _batches(groups, choices, _ready_s(part, groups, choices, costs), carrier, chosen)
            return [_bucket(batch, choice, carrier) for batch, choice in batches]

        plan = plan_per_dtype("hipress", profile, costs.world_size, buckets)
        packed = sum(not segment.dense for _, lane in plan.lanes() for segment in lane.segments)
        return replace(plan, notes=(("gradients", f"{packed} of {len(profile.tensors)} compressed"),))

    def plans() -> Iterator[tuple[str, Plan]]:
        if options.rule != "guarded":
            yield "", made(options)
            return
        yield "", made(replace(options, rule="paper"))
        plain = replace(options, rule="threshold", topology="PS", constants="fitted")
        for threshold in _thresholds(profile):
            for factor in (1, 8):
                size = factor * options.sparse_bulk_bytes
                chosen = replace(plain, compress_min_elems=threshold, sparse_bulk_bytes=size)
                yield f"guarded, all above {threshold} elements compressed, {size} bytes a message", made(chosen)

    return guarded(plans(), profile, costs)


def _thresholds(profile: Profile) -> list[int]:
    """Return the sizes above which none, one, two, four and so on of the largest tensors are, and all of them."""
    sizes = sorted((spec.numel for spec in profile.tensors), reverse=True)
    powers = [0, *(2**n for n in range(len(sizes).bit_length()))]
    return list(dict.fromkeys([*(sizes[n] for n in powers if n < len(sizes)), 0]))


def _choices(groups: list[Group], carrier: Carrier, costs: Costs, options: HipressOptions) -> list[Choice]:
    numel = np.array([sum(spec.numel for spec in group) for group in groups], dtype=float)
    if carrier.dense or not numel.all():  # a model without elements
        return [Choice(False)] * len(groups)
    if options.rule == "threshold":
        compress = numel > options.compress_min_elems
        partitions = np.where(numel > options.partition_min_elems, costs.world_size, 1)
    else:
        steps = fitted(costs) if options.constants == "fitted" else authors(costs.world_size)
        dense = np.array([sum(spec.nbytes for spec in group) for group in groups], dtype=float)
        payload = np.array([_payload_bytes(group, carrier) for group in groups], dtype=float)
        found = decide(numel, dense, payload, costs.world_size, options.topology, steps)
        compress, partitions = found.compress, found.partitions
    aggregators = partitions if options.sparse_op == "a2a_ag" else np.zeros_like(partitions)
    return [Choice(True, int(k)) if c else Choice(False) for c, k in zip(compress, aggregators, strict=True)]


def _payload_bytes(group: Group, carrier: Carrier) -> int:
    assert carrier.compressor is not None
    return build(carrier.compressor).layout_of([spec.shape for spec in group], carrier.density).nbytes


def _ready_s(part: Profile, groups: list[Group], choices: list[Choice], costs: Costs) -> list[float]:
    """Return when each gradient can travel: compression holds up the backward pass."""
    ready, clock_s, at = [], 0.0, 0
    for group, choice in zip(groups, choices, strict=True):
        clock_s += sum(part.ready_gap_s[at : at + len(group)])
        at += len(group)
        if choice.compress:
            clock_s += costs.encode(sum(spec.numel for spec in group))
        ready.append(clock_s)
    return ready


def _batches(
    groups: list[Group], choices: list[Choice], ready_s: list[float], carrier: Carrier, options: HipressOptions
) -> Iterator[tuple[list[Group], Choice]]:
    """Yield the gradients of each message; one message per choice is open at a time."""
    waiting: dict[Choice, list[Group]] = {}
    first_s: dict[Choice, float] = {}
    filled: dict[Choice, int] = {}
    for group, choice, now_s in zip(groups, choices, ready_s, strict=True):
        if choice in waiting and now_s - first_s[choice] > options.bulk_timeout_s:
            yield waiting.pop(choice), choice
        if choice not in waiting:
            waiting[choice], first_s[choice], filled[choice] = [], now_s, 0
        waiting[choice].append(group)
        filled[choice] += _payload_bytes(group, carrier) if choice.compress else sum(spec.nbytes for spec in group)
        if filled[choice] >= (options.sparse_bulk_bytes if choice.compress else options.bulk_bytes):
            yield waiting.pop(choice), choice
    for choice, rest in waiting.items():
        yield rest, choice


def _bucket(batch: list[Group], choice: Choice, carrier: Carrier) -> Bucket:
    if not choice.compress:
        return Bucket((dense_carrier("hipress").lane(batch),))
    if not choice.aggregators:
        return Bucket((carrier.lane(batch),))
    collective = collectives.canonical("a2a_ag", {"aggregators": choice.aggregators})
    return Bucket((replace(carrier, collective=collective).lane(batch),))
