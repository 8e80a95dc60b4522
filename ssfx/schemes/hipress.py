"""HiPress: a cost formula decides for every gradient whether it is compressed; neighbours share a message.

SeCoPa, HiPress's rule, says by that formula, too, into how many partitions a gradient is cut. Each gradient is decided
on its own; neither the others nor the backward pass enter. Source: D-50; the formulas of the authors' public code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from ssfx.collectives import collectives
from ssfx.compressors import build
from ssfx.core.errors import ConfigError
from ssfx.core.lazy import numpy as np
from ssfx.planning.costs import Costs
from ssfx.planning.plan import Bucket, Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.base import scheme
from ssfx.schemes.carrier import Carrier, dense_carrier, sparse_carrier
from ssfx.schemes.search.byte_groups import MIB, Group, dtype_profiles, plan_per_dtype, units
from ssfx.schemes.search.contiguous_groups import ProfiledOptions
from ssfx.schemes.search.guarded import Sketch, best_sketch
from ssfx.simulator.pricing.groups import GroupPrices, Way

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ssfx.simulator.pricing.features import Array

    Ints = NDArray[np.int64]
    Seconds = Callable[[Array], Array]


@dataclass(frozen=True)
class StepCosts:
    """Seconds of the steps, for arrays of partitions.

    gather, broadcast (one aggregator and all workers) and send (one hop) take bytes of the partition, encode its
    elements, decode its elements and the bytes of its payload. Merging is free, as in the authors' fit.
    """

    gather: Seconds
    broadcast: Seconds
    send: Seconds
    encode: Seconds
    decode: Callable[[Array, Array], Array]


def fitted(costs: Costs) -> StepCosts:
    """Return the steps on the cluster that `costs` describes (D-50).

    An aggregator exchanges as much with its workers as every rank does in an all-gather, and one hop is one of its
    world_size - 1 equal messages.
    """

    def gather(nbytes: Array) -> Array:
        return costs.exchange_many_s("all_gather", nbytes)

    return StepCosts(
        gather,
        gather,
        lambda nbytes: gather(nbytes) / (costs.world_size - 1),
        costs.encode.many,
        lambda numel, _: costs.decode.many(numel),
    )


def authors(world_size: int) -> StepCosts:
    """Return the constants in the authors' code: two-bit payloads between 4, 8 or 16 nodes; ConfigError for others."""
    if world_size not in _NODES:
        known = ", ".join(map(str, _NODES))
        raise ConfigError(
            f"scheme=hipress: constants=authors holds for {known} workers only, not for {world_size}; "
            "choose constants=fitted"
        )
    gather, broadcast = _NODES[world_size]
    return StepCosts(
        _per_float(*gather),
        _per_float(*broadcast),
        _per_float(8.50e-7, 0.2034),
        lambda numel: _per_float(1.413e-8, 0.0589)(4 * numel),
        lambda _, nbytes: _per_float(6.204e-9, 0.1396)(nbytes),
    )


_NODES = {
    4: ((2.716e-6, 0.4193), (2.716e-6, 0.2216)),
    8: ((6.117e-6, 0.8077), (6.117e-6, 0.2729)),
    16: ((1.294e-5, 1.4406), (1.292e-5, 0.4554)),
}
"""By number of nodes: gather and broadcast, each in milliseconds per 32-bit number and milliseconds at the start."""


def _per_float(slope_ms: float, start_ms: float) -> Seconds:
    """Return seconds by bytes of a line in milliseconds by 32-bit numbers."""
    return lambda nbytes: 1e-3 * (slope_ms * nbytes / 4 + start_ms)


Topology = Literal["PS", "RING"]

_EVERY = 64
_FURTHER = 64


@dataclass(frozen=True)
class Decisions:
    """For every gradient: the better way, its number of partitions, and the seconds of both ways at their best."""

    compress: NDArray[np.bool_]
    partitions: Ints
    dense_s: Array
    compressed_s: Array


def decide(
    numel: Array, dense_bytes: Array, payload_bytes: Array, world_size: int, topology: Topology, costs: StepCosts
) -> Decisions:
    """Return the decisions for gradients of `numel` (positive) elements; a payload that is not smaller is never sent.

    Of equally good numbers of partitions the smallest is chosen, of equally good ways the dense one.
    """
    counts = partition_counts(world_size)
    possible = counts <= numel[:, None]
    part_numel, part_dense, part_payload = (size[:, None] / counts for size in (numel, dense_bytes, payload_bytes))
    encode, decode = costs.encode(part_numel), costs.decode(part_numel, part_payload)
    hops = world_size - 1
    if topology == "PS":
        dense = costs.gather(part_dense) + costs.broadcast(part_dense)
        packed = costs.gather(part_payload) + costs.broadcast(part_payload)
        packed += np.minimum(counts + 1, world_size) * encode + np.minimum(hops + counts, 2 * hops) * decode
    else:
        dense = 2 * hops * costs.send(part_dense)
        packed = 2 * hops * costs.send(part_payload) + world_size * (encode + decode)
    dense, packed = np.where(possible, dense, np.inf), np.where(possible, packed, np.inf)
    dense_s, compressed_s = dense.min(axis=1), packed.min(axis=1)
    compress = (compressed_s < dense_s) & (payload_bytes < dense_bytes)
    best = np.where(compress, packed.argmin(axis=1), dense.argmin(axis=1))
    return Decisions(compress, counts[best], dense_s, compressed_s)


def partition_counts(world_size: int) -> Ints:
    """Return the numbers of partitions that are tried: up to 64 every one, then about 64 more up to `world_size`.

    The authors try every one; with thousands of ranks the formulas hardly change from one to the next.
    """
    every = np.arange(1, min(world_size, _EVERY) + 1)
    if world_size <= _EVERY:
        return every
    further = np.unique(np.rint(np.geomspace(_EVERY + 1, world_size, _FURTHER)).astype(np.int64))
    return np.concatenate([every, further])


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
    compress_min_elems: Annotated[int, 0] = 262_144
    partition_min_elems: Annotated[int, 0] = 16_777_216
    bulk_bytes: Annotated[int, 1] = 64 * MIB
    sparse_bulk_bytes: Annotated[int, 1] = MIB
    bulk_timeout_s: Annotated[float, 0] = 5e-3
    sparse_op: Literal["ag", "a2a_ag"] = "ag"

    def __post_init__(self) -> None:
        super().__post_init__()
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


class TensorChoice(NamedTuple):
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
    parts = [TensorPart.of(part, carrier) for part in dtype_profiles(profile)]
    prices = GroupPrices(profile, costs, [group for part in parts for group in part.groups])

    def sketch(label: str, chosen: HipressOptions) -> Sketch:
        batches = [list(_batches(part, _choices(part, carrier, costs, chosen), costs, chosen)) for part in parts]
        return Sketch(
            label, _price_s(prices, parts, batches, carrier), lambda: _plan(profile, costs, parts, batches, carrier)
        )

    def sketches() -> Iterator[Sketch]:
        if options.rule != "guarded":
            yield sketch("", options)
            return
        yield sketch("", replace(options, rule="paper"))
        plain = replace(options, rule="threshold", topology="PS", constants="fitted")
        for threshold in _thresholds(profile):
            for factor in (1, 8):
                size = factor * options.sparse_bulk_bytes
                chosen = replace(plain, compress_min_elems=threshold, sparse_bulk_bytes=size)
                label = f"guarded, all above {threshold} elements compressed, {size} bytes a message"
                yield sketch(label, chosen)

    return best_sketch(sketches())


@dataclass(frozen=True)
class TensorPart:
    """The gradients of one dtype: groups of one tensor with elements, and by group what rules and messages ask for."""

    groups: list[Group]
    numel: Array
    dense_bytes: list[int]
    payload_bytes: list[int]
    ready_s: Array

    @classmethod
    def of(cls, part: Profile, carrier: Carrier) -> TensorPart:
        """Return the groups of one dtype's profile; ready_s is without compression."""
        groups = units(part.tensors)
        stops = np.cumsum([len(group) for group in groups])
        dense = [sum(spec.nbytes for spec in group) for group in groups]
        payload = dense if carrier.dense else [_payload_bytes(group, carrier) for group in groups]
        numel = np.array([sum(spec.numel for spec in group) for group in groups], dtype=float)
        return cls(groups, numel, dense, payload, np.cumsum(part.ready_gap_s)[stops - 1])


Batch = tuple["list[int]", TensorChoice]
"""The numbers of the groups of one message, and what was decided for them."""


def _price_s(prices: GroupPrices, parts: list[TensorPart], batches: list[list[Batch]], carrier: Carrier) -> float:
    """Return the end of the step; messages are launched in the order of their last gradients."""
    starts = accumulate((len(part.groups) for part in parts), initial=0)
    every = [
        ([start + at for at in batch], choice)
        for start, row in zip(starts, batches, strict=False)
        for batch, choice in row
    ]
    every.sort(key=lambda row: prices.last[row[0][-1]])
    ways = list(dict.fromkeys(choice for _, choice in every))
    chosen, owner = (np.zeros(len(prices.last), dtype=np.int64) for _ in range(2))
    for number, (batch, choice) in enumerate(every):
        owner[batch], chosen[batch] = number, ways.index(choice)
    return prices.total_s([_way(choice, carrier) for choice in ways], chosen, owner)


def _way(choice: TensorChoice, carrier: Carrier) -> Way:
    if not choice.compress:
        return Way("all_reduce")
    return Way(_collective(choice, carrier), carrier.compressor, carrier.density)


def _collective(choice: TensorChoice, carrier: Carrier) -> str:
    if not choice.aggregators:
        return carrier.collective
    return collectives.canonical("a2a_ag", {"aggregators": choice.aggregators})


def _plan(
    profile: Profile, costs: Costs, parts: list[TensorPart], batches: list[list[Batch]], carrier: Carrier
) -> Plan:
    rows = iter(zip(parts, batches, strict=True))

    def buckets(_: Profile) -> list[Bucket]:
        part, row = next(rows)
        return [_bucket([part.groups[at] for at in batch], choice, carrier) for batch, choice in row]

    plan = plan_per_dtype("hipress", profile, costs.world_size, buckets)
    packed = sum(not segment.dense for _, lane in plan.lanes() for segment in lane.segments)
    return replace(plan, notes=(("gradients", f"{packed} of {len(profile.tensors)} compressed"),))


def _thresholds(profile: Profile) -> list[int]:
    """Return the sizes above which none, one, two, four and so on of the largest tensors are, and all of them."""
    sizes = sorted((spec.numel for spec in profile.tensors), reverse=True)
    powers = [0, *(2**n for n in range(len(sizes).bit_length()))]
    return list(dict.fromkeys([*(sizes[n] for n in powers if n < len(sizes)), 0]))


def _choices(part: TensorPart, carrier: Carrier, costs: Costs, options: HipressOptions) -> list[TensorChoice]:
    numel = part.numel
    if carrier.dense or not numel.all():  # a model without elements
        return [TensorChoice(False)] * len(numel)
    if options.rule == "threshold":
        compress = numel > options.compress_min_elems
        partitions = np.where(numel > options.partition_min_elems, costs.world_size, 1)
    else:
        steps = fitted(costs) if options.constants == "fitted" else authors(costs.world_size)
        dense, payload = (np.array(sizes, dtype=float) for sizes in (part.dense_bytes, part.payload_bytes))
        found = decide(numel, dense, payload, costs.world_size, options.topology, steps)
        compress, partitions = found.compress, found.partitions
    aggregators = partitions if options.sparse_op == "a2a_ag" else np.zeros_like(partitions)
    kinds = {
        (c, k): TensorChoice(True, k) if c else TensorChoice(False)
        for c, k in set(zip(compress.tolist(), aggregators.tolist(), strict=True))
    }
    return [kinds[one] for one in zip(compress.tolist(), aggregators.tolist(), strict=True)]


def _payload_bytes(group: Group, carrier: Carrier) -> int:
    assert carrier.compressor is not None
    return build(carrier.compressor).layout_of([spec.shape for spec in group], carrier.density).nbytes


def _batches(part: TensorPart, choices: list[TensorChoice], costs: Costs, options: HipressOptions) -> Iterator[Batch]:
    """Yield the gradients of each message; one message per choice is open at a time.

    A gradient can travel when it is there and compressed; compression holds up the backward pass.
    """
    packed = np.array([choice.compress for choice in choices])
    ready_s = part.ready_s + np.cumsum(np.where(packed, costs.encode.many(part.numel), 0.0))
    waiting: dict[TensorChoice, list[int]] = {}
    first_s: dict[TensorChoice, float] = {}
    filled: dict[TensorChoice, int] = {}
    limits = {True: options.sparse_bulk_bytes, False: options.bulk_bytes}
    sizes = {True: part.payload_bytes, False: part.dense_bytes}
    for at, (choice, now_s) in enumerate(zip(choices, ready_s.tolist(), strict=True)):
        if choice in waiting and now_s - first_s[choice] > options.bulk_timeout_s:
            yield waiting.pop(choice), choice
        if choice not in waiting:
            waiting[choice], first_s[choice], filled[choice] = [], now_s, 0
        waiting[choice].append(at)
        filled[choice] += sizes[choice.compress][at]
        if filled[choice] >= limits[choice.compress]:
            yield waiting.pop(choice), choice
    for choice, rest in waiting.items():
        yield rest, choice


def _bucket(batch: list[Group], choice: TensorChoice, carrier: Carrier) -> Bucket:
    if not choice.compress:
        return Bucket((dense_carrier("hipress").lane(batch),))
    return Bucket((replace(carrier, collective=_collective(choice, carrier)).lane(batch),))
