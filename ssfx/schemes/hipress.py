"""HiPress: a cost formula decides for every gradient whether it is compressed; neighbours share a message.

Each gradient is decided on its own; neither the others nor the backward pass enter. Source: D-50; SeCoPa, the authors'
rule, with parameter servers and costs fitted to the cluster at hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from ssfx.compressors import build
from ssfx.core.lazy import numpy as np
from ssfx.planning.costs import Costs
from ssfx.planning.plan import Bucket, Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.base import scheme
from ssfx.schemes.search.byte_groups import MIB, Group, plan_per_dtype, units
from ssfx.schemes.search.cheapest_plan import least, noted, priced
from ssfx.schemes.search.contiguous_groups import ProfiledOptions
from ssfx.schemes.transport import Transport, dense_transport, sparse_transport

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Flags = NDArray[np.bool_]

COMPRESS_ABOVE = 262_144
"""Elements from which rule=threshold compresses, as the authors' example scripts do."""
BULK_BYTES, SPARSE_BULK_BYTES, BULK_TIMEOUT_S = 64 * MIB, MIB, 5e-3
"""A message is closed when it holds so much of dense or of compressed gradients, or waits longer for the next one."""
EVERY, FURTHER = 64, 64
"""Partitions are tried one by one up to 64, then about 64 more: with thousands of ranks formulas hardly change."""


@dataclass(frozen=True, kw_only=True)
class HipressOptions(ProfiledOptions):
    """rule: "paper" compares costs, "threshold" compresses above 262,144 elements; "guarded" takes, of the paper's plan
    and those that compress none, one, two, four ... of the largest tensors, the one with the least price.
    """

    rule: Literal["guarded", "paper", "threshold"] = "guarded"


@scheme(
    "hipress",
    summary="a cost formula per gradient decides on compression; small ones share messages",
    source="HiPress, SOSP 2021 (CaSync and SeCoPa); D-50",
    defaults=HipressOptions(),
    fusion_unit="tensor",
    collectives=("all_gather", "all_reduce"),
    profiled=True,
)
def plan_hipress(profile: Profile, costs: Costs, options: HipressOptions) -> Plan:
    """Return the plan with one compressor call per chosen gradient; its notes hold their number and the time."""
    transport = sparse_transport(options, costs.world_size)

    def plan(above: int | None, bulk_bytes: int = SPARSE_BULK_BYTES) -> Plan:
        def buckets(part: Profile) -> Iterator[Bucket]:
            groups = units(part.tensors)
            packed = chosen(groups, transport, costs, above)
            for batch, compressed in messages(part, groups, packed, transport, costs, bulk_bytes):
                yield Bucket(((transport if compressed else dense_transport("hipress")).lane(batch),))

        made = plan_per_dtype("hipress", profile, costs.world_size, buckets)
        packed = sum(not segment.dense for _, lane in made.lanes() for segment in lane.segments)
        return replace(made, notes=(("gradients", f"{packed} of {len(profile.tensors)} compressed"),))

    plans = [("", plan(COMPRESS_ABOVE if options.rule == "threshold" else None))]
    for above in thresholds(profile) if options.rule == "guarded" else ():
        for size in (SPARSE_BULK_BYTES, 8 * SPARSE_BULK_BYTES):
            label = f"guarded, all above {above} elements compressed, {size} bytes a message"
            plans.append((label, plan(above, size)))
    found = priced(plans, profile, costs)
    return noted(least(found), found[0].price_s)


def thresholds(profile: Profile) -> list[int]:
    """Return the sizes above which none, one, two, four and so on of the largest tensors are, and all of them."""
    sizes = sorted((spec.numel for spec in profile.tensors), reverse=True)
    powers = [0, *(2**n for n in range(len(sizes).bit_length()))]
    return list(dict.fromkeys([*(sizes[n] for n in powers if n < len(sizes)), 0]))


def chosen(groups: list[Group], transport: Transport, costs: Costs, above: int | None) -> list[bool]:
    """Return of every group whether it is compressed: where it has more than `above` elements; None: by the formula."""
    numel = np.array([sum(spec.numel for spec in group) for group in groups], dtype=float)
    if transport.dense or not numel.all():  # a model without elements
        return [False] * len(groups)
    if above is not None:
        return list((numel > above).tolist())
    dense = np.array([sum(spec.nbytes for spec in group) for group in groups], dtype=float)
    payload = np.array([_payload(group, transport) for group in groups], dtype=float)
    return list(pays(numel, dense, payload, costs).tolist())


def pays(numel: Array, dense_bytes: Array, payload_bytes: Array, costs: Costs) -> Flags:
    """Return which gradients travel faster compressed, both ways with the best number of partitions (D-50).

    An aggregator exchanges as much with its workers as every rank does in an all-gather. A payload that is not smaller
    is never sent.
    """
    ranks, counts = costs.world_size, partition_counts(costs.world_size)
    numel_, dense, payload = (sizes[:, None] / counts for sizes in (numel, dense_bytes, payload_bytes))

    def exchange_s(nbytes: Array) -> Array:  # to the aggregator and back
        return 2 * costs.exchange_many_s("all_gather", nbytes)

    packed_s = exchange_s(payload) + np.minimum(counts + 1, ranks) * costs.encode.many(numel_)
    packed_s += np.minimum(ranks - 1 + counts, 2 * (ranks - 1)) * costs.decode.many(numel_)
    dense_s, packed_s = (np.where(counts <= numel[:, None], one, np.inf) for one in (exchange_s(dense), packed_s))
    faster: Flags = (packed_s.min(axis=1) < dense_s.min(axis=1)) & (payload_bytes < dense_bytes)
    return faster


def partition_counts(ranks: int) -> NDArray[np.int64]:
    """Return the numbers of partitions that are tried."""
    further = np.rint(np.geomspace(EVERY + 1, ranks, FURTHER if ranks > EVERY else 0))
    return np.concatenate([np.arange(1, min(ranks, EVERY) + 1), np.unique(further)]).astype(np.int64)


def messages(
    part: Profile, groups: list[Group], packed: list[bool], transport: Transport, costs: Costs, sparse_bytes: int
) -> Iterator[tuple[list[Group], bool]]:
    """Yield the gradients of each message and whether they are compressed; one message of each kind is open at a time.

    A gradient can travel when it is there and compressed; compression holds up the backward pass.
    """
    numel = np.array([sum(spec.numel for spec in group) for group in groups], dtype=float)
    stops = np.cumsum([len(group) for group in groups])
    ready_s = np.cumsum(part.ready_gap_s)[stops - 1] + np.cumsum(np.where(packed, costs.encode.many(numel), 0.0))
    waiting: dict[bool, list[Group]] = {}
    first_s: dict[bool, float] = {}
    filled: dict[bool, int] = {}
    limit = {True: sparse_bytes, False: BULK_BYTES}
    for group, kind, now_s in zip(groups, packed, ready_s.tolist(), strict=True):
        if kind in waiting and now_s - first_s[kind] > BULK_TIMEOUT_S:
            yield waiting.pop(kind), kind
        if kind not in waiting:
            waiting[kind], first_s[kind], filled[kind] = [], now_s, 0
        waiting[kind].append(group)
        filled[kind] += _payload(group, transport) if kind else sum(spec.nbytes for spec in group)
        if filled[kind] >= limit[kind]:
            yield waiting.pop(kind), kind
    for kind, rest in waiting.items():
        yield rest, kind


def _payload(group: Group, transport: Transport) -> int:
    return build(str(transport.compressor)).layout_of([spec.shape for spec in group], transport.density).nbytes
