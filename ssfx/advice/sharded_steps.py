"""simulate_sharded(): one step of a model of `fully_shard` in virtual time, with the plans of its two sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ssfx.core.lazy import numpy as np
from ssfx.perf_model.mesh import Mesh
from ssfx.perf_model.timing_model import TimingModel
from ssfx.planning.exempt import exempt_by_name, exempted
from ssfx.planning.plan import Lane, Plan
from ssfx.planning.profile import Profile
from ssfx.planning.sharding import ShardedPlan, Sharding, Unit, units_of
from ssfx.schemes import schemes
from ssfx.schemes.sharded_legs import OVER_SHARDS, check_leg, check_weights, leg_plan, weights_plan
from ssfx.simulator.pricing.features import CALLS, NUMEL, PACKED, REST, compressed, plain
from ssfx.simulator.pricing.message_sizes import plan_traffic
from ssfx.simulator.pricing.plan_messages import Message, PlanMessages
from ssfx.simulator.pricing.prices import Prices
from ssfx.simulator.pricing.schedule import schedule
from ssfx.simulator.pricing.selection_stats import SelectionStats, Volumes
from ssfx.simulator.pricing.sharded_step import (
    Machine,
    Part,
    ShardedLowering,
    UnitCosts,
    gathered_bytes,
    handed_over,
    is_native,
    ranks_per_node,
    row_bytes,
    shard_traffic,
    summed_inside,
)
from ssfx.simulator.result import Simulated

TORCH = "ddp"
"""The scheme that leaves a sum to torch."""


@dataclass(frozen=True)
class Asked:
    """How gradients are summed over a leg: a scheme, its options with compressor and density, and what is kept."""

    scheme: str = TORCH
    given: Mapping[str, Any] = field(default_factory=dict)
    memory: str | None = None


@dataclass(frozen=True)
class Others:
    """What is asked of a sharded model besides sums: the compressor of weights' gathers, and kinds sent as they are."""

    weights: str | None = None
    exempt: Sequence[str] = ()


@dataclass(frozen=True)
class ShardedStep(Simulated):
    """One step of a sharded model; `plan` is that of the sum that the scheme is about."""

    sharded: ShardedPlan
    passes: int

    @property
    def volumes(self) -> Volumes:
        """What a rank hands over and sends in gathers of weights and in both sums."""
        return volumes_of(self.sharded, self.selection, self.passes)


def volumes_of(found: ShardedPlan, selection: SelectionStats | None = None, passes: int = 1) -> Volumes:
    """Return what a rank hands over and sends in gathers of weights and in both sums, in a step of so many passes.

    Replicas exchange once a step, what shards have summed in all passes.
    """
    contributed = sum(_gathered(found))
    sent = (found.sharding.shards - 1) * contributed
    for _, lane in found.shards.lanes():
        contributed += handed_over(found.shards, lane)
        sent += shard_traffic(found.shards, lane).sent_bytes
    contributed, sent = passes * contributed, passes * sent
    if found.replicas is not None:
        between = (selection or SelectionStats()).volumes(found.replicas)
        contributed, sent = contributed + between.contributed, sent + between.sent
    return Volumes(contributed, sent)


def sent_bytes(found: ShardedPlan, rank: int = 0) -> int:
    """Return the bytes that a rank sends in a step of one pass, in gathers of weights and in both sums."""
    sent = (found.sharding.shards - 1) * sum(_gathered(found))
    sent += sum(shard_traffic(found.shards, lane, rank).sent_bytes for _, lane in found.shards.lanes())
    return sent + (plan_traffic(found.replicas).sent_bytes if found.replicas is not None else 0)


def _gathered(found: ShardedPlan) -> list[int]:
    """Return what a rank brings to the gathers of each group's weights in a pass; the root is gathered once."""
    twice = found.sharding.reshard_after_forward
    sizes = zip(gathered_bytes(found), found.units, strict=True)
    return [nbytes * (2 if twice and unit.name else 1) for nbytes, unit in sizes]


def plan_sharded(
    profile: Profile,
    sharding: Sharding,
    asked: Asked,
    over_shards: Asked,
    others: Others | None = None,
    mesh: Mesh | None = None,
) -> ShardedPlan:
    """Return the plans of a sharded model, as `ssfx.attach` makes them; ConfigError for what that refuses.

    `asked` is about the sum over replicas, or over shards where there are none; `over_shards` says how shards are
    summed beside replicas. A scheme that plans by costs takes those of `mesh` between replicas.
    """
    others = others or Others()
    units = units_of(profile.tensors)
    shards = [unit.shards(sharding.shards, sharding.reduce_dtype) for unit in units]
    names = exempt_by_name(profile.tensors, others.exempt)

    def exempt(plan: Plan) -> Plan:
        return exempted(plan, names)

    first = asked if sharding.kind == "fsdp" else over_shards
    check_leg(first.scheme, dict(first.given), first.memory, of_shards=True)
    plan, owner = leg_plan(
        shards, first.scheme, dict(first.given), sharding.shards, carriers=OVER_SHARDS, exempt=exempt
    )
    found = ShardedPlan(sharding, units, plan, None, tuple(owner), (), first.memory not in (None, "none"))
    if sharding.kind == "hsdp":
        check_leg(asked.scheme, dict(asked.given), asked.memory, of_shards=False)
        costs = None
        if schemes[asked.scheme].profiled and mesh is not None and mesh.replicas is not None:
            costs = mesh.replicas.planning_costs(asked.given.get("compressor"), asked.given.get("density"))
        plan, owner = leg_plan(shards, asked.scheme, dict(asked.given), sharding.replicas, exempt=exempt, costs=costs)
        found = replace(found, replicas=plan, of_replicas=tuple(owner))
    if others.weights is not None:
        check_weights(others.weights)
        gathered = [unit.shards(sharding.shards, sharding.gather_dtype) for unit in units]
        plan, owner = weights_plan(gathered, others.weights, sharding.shards, exempt)
        found = replace(found, weights=plan, of_weights=tuple(owner))
    return found


def simulate_sharded(
    found: ShardedPlan, profile: Profile, mesh: Mesh, *, selection: SelectionStats | None = None, accumulate: int = 1
) -> ShardedStep:
    """Return one step in virtual time; each of the `accumulate` passes gathers, and sums over shards.

    The last alone sums over replicas, as set_requires_all_reduce(False) has it in the others.
    Raises ConfigError when the mesh has no times for a compressor or collective of the plans.
    """
    selection = selection or SelectionStats()
    inside = Prices(mesh.shards, notes=True)
    over_shards = _by_group(
        found.shards,
        found.of_shards,
        len(found.units),
        [_shard_sum(found.shards, lane, inside, row) for row, lane in enumerate(_lanes(found.shards))],
    )
    over_replicas: list[list[Part]] = [[] for _ in found.units]
    outside = inside
    if found.replicas is not None and mesh.replicas is not None:
        priced = PlanMessages(mesh.replicas, selection, notes=True)
        outside = priced.prices
        messages = [message for bucket in priced.of(found.replicas) for message in bucket]
        native = found.replicas.scheme == TORCH
        for number in range(len(found.units)):
            mine = [i for i, (b, _) in enumerate(_positions(found.replicas)) if found.of_replicas[b] == number]
            over_replicas[number] = _replica_sum(
                [messages[i] for i in mine], found.units[number], found.sharding, mesh.replicas, native
            )
    gathers = _gathers(found, inside)
    costs = [UnitCosts(*parts) for parts in zip(gathers, over_shards, over_replicas, strict=True)]
    system = mesh.shards
    over = system.overheads
    machine = Machine(over.fill_s_per_byte, over.lane_s, system.host_shares, mesh.apart)
    tasks = ShardedLowering(profile, found.sharding, found.units, costs, machine).step(accumulate, over.finish_s)
    iteration_s = schedule(tasks, system.burst_s)
    lines = tuple(dict.fromkeys((*inside.outside, *outside.outside)))
    return ShardedStep(found.plan, tuple(tasks), iteration_s, lines, selection, found, accumulate)


def _positions(plan: Plan) -> list[tuple[int, int]]:
    return [(b, k) for b, bucket in enumerate(plan.buckets) for k in range(len(bucket.lanes))]


def _lanes(plan: Plan) -> list[Lane]:
    return [plan.lane(position) for position in _positions(plan)]


def _by_group(plan: Plan, owner: Sequence[int], count: int, parts: Sequence[list[Part]]) -> list[list[Part]]:
    found: list[list[Part]] = [[] for _ in range(count)]
    for (bucket, _), some in zip(_positions(plan), parts, strict=True):
        found[owner[bucket]] += some
    return found


def _gathers(found: ShardedPlan, prices: Prices) -> list[list[Part]]:
    """Return one gather of each group's weights: torch's, or shards compressed, sent, and decoded rank by rank."""
    gathers = [
        [_exchange(f"gather {unit.name or 'root'}", "all_gather", nbytes, prices, 0)]
        for unit, nbytes in zip(found.units, gathered_bytes(found), strict=True)
    ]
    if (plan := found.weights) is None:
        return gathers
    fill_s_per_byte = prices.system.overheads.fill_s_per_byte
    for (bucket, _), lane in plan.lanes():
        number = found.of_weights[bucket]
        if is_native(lane):
            continue
        spec, table, packed = _call(plan, lane)
        copied_s = fill_s_per_byte * 4 * float(table[NUMEL].sum())  # into one vector, and back into places
        encode_s = float(prices.call_s(spec, packed.sum(axis=1, keepdims=True))[0]) + copied_s
        decode_s = float(prices.decode_s(spec, "all_gather", packed).sum()) + plan.world_size * copied_s
        name = found.units[number].name or "root"
        gathers[number] = [
            Part("compress", f"weights of {name}", encode_s),
            *gathers[number],
            Part("decompress", f"weights of {name}", decode_s),
        ]
    return gathers


def _call(plan: Plan, lane: Lane) -> tuple[str, Any, Any]:
    """Return the compressor of a lane, the features of its segments, and those of the compressed ones."""
    table = np.array([_features(plan, segment) for segment in lane.segments], dtype=float).T
    spec = next(segment.compressor for segment in lane.segments if segment.compressor is not None)
    return spec, table, table[:, table[CALLS] > 0]


def _exchange(name: str, primitive: str, nbytes: int, prices: Prices, row: int) -> Part:
    """Return the part of one primitive to which each rank brings so many bytes."""
    charge = prices.primitive(primitive, nbytes, row)
    return Part("exchange", f"{name} {nbytes} B", charge.work_s, charge.demand, charge.wire_s)


def _sent_each(name: str, nbytes: int, peers: int, prices: Prices, row: int, *, inside: bool = False) -> list[Part]:
    """Return the part of a message of so many bytes to each of `peers` ranks; [] without any."""
    if not peers:
        return []
    charge = prices.primitive("send", nbytes, row, inside=inside).times(peers)
    return [Part("exchange", f"{name} {nbytes} B", charge.work_s, charge.demand, charge.wire_s)]


def _shard_sum(plan: Plan, lane: Lane, prices: Prices, row: int) -> list[Part]:
    """Return the sum over shards of one group: torch's, or chunks compressed in a call, sent, and added one by one.

    Chunks that are summed inside nodes go to each neighbour there, and then to one rank of every node.
    """
    nbytes, name = handed_over(plan, lane), lane.tensors[-1]
    if is_native(lane):
        return [_exchange("reduce_scatter", "reduce_scatter", nbytes, prices, row)]
    size = ranks_per_node(lane)
    ranks = plan.world_size // size
    spec, table, packed = _call(plan, lane)
    whole = ranks * packed.sum(axis=1, keepdims=True)
    over = prices.system.overheads
    encode_s = float(prices.call_s(spec, whole)[0]) + over.add_s * float(whole[PACKED, 0])
    encode_s += over.fill_s_per_byte * ranks * float(table[REST].sum())  # into rows
    # Of all ranks' messages, segment by segment.
    decode_s = float(prices.decode_s(spec, "all_gather", packed, ranks=ranks).sum())
    decode_s += over.fill_s_per_byte * 4 * float(table[NUMEL].sum())  # out of the sums
    return [
        *_sent_each("sum inside nodes", summed_inside(plan, lane), size - 1, prices, row, inside=True),
        Part("compress", name, encode_s),
        *(
            [_exchange("all_to_all", "all_to_all", nbytes, prices, row)]
            if size == 1
            else _sent_each("all_to_all between nodes", row_bytes(plan, lane), ranks - 1, prices, row)
        ),
        Part("decompress", name, decode_s),
    ]


def _features(plan: Plan, segment: Any) -> tuple[float, ...]:
    specs = [plan.by_name[name] for name in segment.tensors]
    numel = sum(spec.numel for spec in specs)
    if segment.compressor is None or not numel:
        return plain(numel, sum(spec.nbytes for spec in specs), len(specs))
    return compressed(segment.compressor, tuple(spec.shape for spec in specs), segment.density)


def _replica_sum(
    messages: Sequence[Message], unit: Unit, sharding: Sharding, system: TimingModel, native: bool
) -> list[Part]:
    """Return the sum over replicas of one group: what is compressed, exchanges, and what decodes and averages them."""
    exchanges = [
        Part("exchange", message.name, charge.work_s, charge.demand, charge.wire_s)
        for message in messages
        for charge in message.charges
    ]
    if native:
        return exchanges
    over, name = system.overheads, unit.name or "root"
    before_s = sum(sum(message.added_s.values()) for message in messages)
    before_s += sum(call.work_s for message in messages for call in message.calls)
    after_s = sum(message.decode_s for message in messages)
    summed = sum(message.summed for message in messages)
    after_s += over.sum_s * summed + over.result_s * max(0, len(unit.tensors) - summed)
    after_s += over.result_s_per_byte * 4 * unit.shard_numel(sharding.shards)
    if any(message.compresses for message in messages):
        after_s += over.decode_s
    return [Part("compress", name, before_s), *exchanges, Part("decompress", name, after_s)]
