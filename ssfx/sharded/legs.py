"""The legs of a sharded exchange, what is asked of each, and its plan: a bucket is a group of `fully_shard`.

Shards lie in the flat buffers that torch gathers and reduces one after the other, with their padding.

In the sum over shards of one group every rank sends every other its chunk, compressed, and adds up what it received. A
message to one rank is laid out as any other. All chunks are compressed in one call, as segments of a lane of as many
tensors times ranks; their residuals are the memory of those tensors (`sent_to` names them). Received numbers are added
in float32, in the order of ranks. Dense messages are torch's own reduce-scatter. Where ranks share nodes, they sum
their chunks there first, uncompressed, and what is compressed goes to the rank of equal local index in each node.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import torch
import torch.distributed as dist

from ssfx.collectives.comm import Comm
from ssfx.collectives.hierarchical import sum_of_part
from ssfx.compressors import Compressor, Context, build
from ssfx.compressors.batch import Batch, Part, compress
from ssfx.compressors.memories import Memory
from ssfx.core.errors import ConfigError
from ssfx.planning.costs import Costs
from ssfx.planning.exempt import exempted
from ssfx.planning.plan import Bucket, Lane, Plan, TensorSpec
from ssfx.runtime.message import all_finite
from ssfx.runtime.message_layout import MessageLayout, Section
from ssfx.runtime.message_state import MessageState
from ssfx.runtime.online import costs_for
from ssfx.runtime.store import Store, identity
from ssfx.schemes import Scheme, schemes
from ssfx.schemes.sharded_legs import GATHERS, OVER_SHARDS, check_weights, leg_plan
from ssfx.sharded.torch_fsdp import ShardGroup
from ssfx.simulator.pricing.sharded_step import is_native, ranks_per_node, row_bytes


@dataclass(frozen=True)
class Leg:
    """What is exchanged how, and between whom: shards between replicas, or gradients between the shards of a replica.

    `given` are the scheme's options that were asked for; parameters in `exempt` travel as they are.
    """

    groups: Sequence[ShardGroup]
    scheme: Scheme
    given: dict[str, Any]
    memory: Memory | None
    comm: Comm
    exempt: frozenset[str] = frozenset()
    agreed: tuple[Plan, list[int]] | None = None
    """The plan of a scheme that plans by costs, and the numbers of its buckets' groups."""
    of_shards: ClassVar[bool] = False
    carriers: ClassVar[tuple[str, str] | None] = None

    @property
    def identity(self) -> dict[str, str]:
        """What determines the exchange besides the model, as text."""
        return identity(self.scheme, self.given, self.memory, self.exempt)

    @cached_property
    def _planned(self) -> tuple[Plan, list[int]]:
        return self.agreed or self._plan_by(None)

    def with_costs(self, costs: Costs | None) -> Leg:
        """Return the leg with the plan of the first rank of the mesh, by costs that are measured where none are given.

        All ranks of the mesh call it together.
        """
        if costs is None:
            largest = max(group.numel for group in self.groups)
            costs = costs_for(self.comm, self.comm.device, self.scheme.online(self.given), largest, 0.0)
        plan, _ = self._plan_by(costs)
        for group in (self.comm.group, self.groups[0].shards):  # replicas first, then the shards of the first one
            box = [plan.to_json()]
            dist.broadcast_object_list(box, group=group, group_src=0)
            plan = Plan.from_json(box[0])
        return self.holding(plan)

    def holding(self, plan: Plan) -> Leg:
        """Return the leg with another plan; ConfigError where one of its buckets is not of one group."""
        owner = {name: number for number, group in enumerate(self.groups) for name in group.names}
        found = [{owner.get(name) for lane in bucket.lanes for name in lane.tensors} for bucket in plan.buckets]
        if any(len(numbers) > 1 or None in numbers for numbers in found):
            raise ConfigError("this plan was made for other groups of fully_shard; wrap the same modules")
        return replace(self, agreed=(plan, [number for numbers in found for number in numbers if number is not None]))

    def _plan_by(self, costs: Costs | None) -> tuple[Plan, list[int]]:
        return leg_plan(
            [self._specs(group) for group in self.groups],
            self.scheme.name,
            self.given,
            self.comm.world_size,
            carriers=self.carriers,
            exempt=lambda plan: exempted(plan, self.exempt),
            costs=costs,
        )

    def _specs(self, group: ShardGroup) -> tuple[TensorSpec, ...]:
        """Return the shards of a group, as torch reduces them."""
        return _specs_of(group.shapes, group.dtype)

    @property
    def plan(self) -> Plan:
        """The plan; its buckets hold tensors of one group each.

        A scheme with byte caps sends a group as a whole unless the caps are given: torch reduces it at once.
        """
        return self._planned[0]

    @property
    def group_of_bucket(self) -> list[int]:
        """The number of the group of each bucket."""
        return self._planned[1]


@dataclass(frozen=True)
class ShardSum(Leg):
    """The sum over shards: one message of a group to every rank, however the scheme divides it into messages."""

    of_shards: ClassVar[bool] = True
    carriers: ClassVar[tuple[str, str] | None] = OVER_SHARDS


@dataclass(frozen=True)
class Weights(Leg):
    """The gathers of weights: one message of a group from every rank, of frozen weights, too."""

    carriers: ClassVar[tuple[str, str] | None] = GATHERS

    def _specs(self, group: ShardGroup) -> tuple[TensorSpec, ...]:
        """Return the shards of a group, as torch gathers them."""
        return _specs_of(group.whole_shapes, group.gather_dtype())


def weights_leg(groups: Sequence[ShardGroup], compressor: str, comm: Comm, exempt: frozenset[str]) -> Weights:
    """Return the gathers of the weights of `groups` by a compressor; ConfigError where torch's alone can."""
    check_weights(compressor)
    return Weights(groups, schemes["fused_all"], {"compressor": compressor}, None, comm, exempt)


def _specs_of(shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype) -> tuple[TensorSpec, ...]:
    name = str(dtype).removeprefix("torch.")
    return tuple(TensorSpec(tensor, shape, name) for tensor, shape in shapes.items())


def places_of(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, int]]:
    """Return where every shard lies in the buffer of one rank, by the padded shapes in their order."""
    places, offset = {}, 0
    for name, shape in shapes.items():
        numel = torch.Size(shape).numel()
        places[name] = (offset, offset + numel)
        offset += numel
    return places


def runs_of(places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the same places with those that follow each other joined."""
    runs: list[tuple[int, int]] = []
    for lo, hi in places:
        if runs and runs[-1][1] == lo:
            runs[-1] = (runs[-1][0], hi)
        else:
            runs.append((lo, hi))
    return runs


def sent_to(name: str, rank: int) -> str:
    """Return the name of what is kept of a parameter's chunk that goes to a rank."""
    return f"{name} to {rank}"


def sent_shapes(plan: Plan) -> dict[str, tuple[int, ...]]:
    """Return the shapes of everything that may be kept, by the names of `sent_to`."""
    return {sent_to(spec.name, rank): spec.shape for spec in plan.tensors for rank in range(plan.world_size)}


class Buffers:
    """Memory that all groups use in turn: a vector to compress, one to decode into, and a message in two orders."""

    def __init__(self, legs: Sequence[ShardLeg], device: torch.device) -> None:
        def bytes_of(sizes: Iterator[int]) -> torch.Tensor:
            return torch.empty(max(sizes, default=0), dtype=torch.uint8, device=device)

        def floats(sizes: Iterator[int]) -> torch.Tensor:
            return torch.zeros(max(sizes, default=0), dtype=torch.float32, device=device)

        packed = [leg for leg in legs if not leg.native]
        self.vector = floats(leg.vector_numel for leg in packed)
        self.decoded = floats(leg.numel for leg in packed)
        self.message = bytes_of(leg.message_bytes for leg in packed)
        self.rows = bytes_of(leg.rows_bytes for leg in packed)


class ShardLeg:
    """The reduce-scatter of one group by a lane of `plan`, whose tensors are shards, of `comm.world_size` ranks."""

    def __init__(
        self,
        group: ShardGroup,
        lane: Lane,
        plan: Plan,
        comm: Comm,
        store: Store,
        memory: Memory | None,
        seed: int,
        step: int,
    ) -> None:
        self.native = is_native(lane)
        self._comm, self._memory, self._seed = comm, memory, seed
        self.numel = group.numel
        self._state: MessageState | None = None
        if self.native:
            return
        size = ranks_per_node(lane)
        node, local = divmod(comm.rank, size)
        self._inside = range(node * size, (node + 1) * size)
        self._to = range(local, comm.world_size, size)
        """The ranks that share the node, and those that compressed chunks go to; this one is in both."""
        self._lane, self._at = lane, places_of(group.shapes)
        self._shapes = [tuple(plan.by_name[name].shape for name in segment.tensors) for segment in lane.segments]
        whole = _to_ranks(plan, lane, self._to)
        (spec,) = {segment.compressor for segment in lane.segments if segment.compressor is not None}
        self._compressor: Compressor = build(spec)
        self._row, self._layout = MessageLayout(lane, plan), MessageLayout(whole.buckets[0].lanes[0], whole)
        self.row_bytes = row_bytes(plan, lane)
        self.rows_bytes, self.message_bytes = len(self._to) * self.row_bytes, self._layout.nbytes
        self._packed = [i for i in self._row.order if not lane.segments[i].dense]
        self._packed_numel = sum(self._row.numel[i] for i in self._packed)
        self.vector_numel = len(self._to) * self._packed_numel
        self._parts = self._parts_of(whole)
        if memory is not None and memory.stateful:
            self._state = MessageState(
                whole.buckets[0].lanes[0], self._parts, memory, self._compressor, store, comm.device, {}, {}, step
            )

    def _parts_of(self, whole: Plan) -> dict[int, Part]:
        ids = {name: i for i, name in enumerate(sorted(whole.by_name))}
        lane, parts, offset = whole.buckets[0].lanes[0], {}, 0
        for i in self._layout.order:
            segment = lane.segments[i]
            if segment.dense:
                continue
            lo, pieces = offset, []
            for name in segment.tensors:
                pieces.append((offset, offset + whole.by_name[name].numel))
                offset = pieces[-1][1]
            parts[i] = Part(
                lo,
                offset,
                self._layout.layouts[i],
                segment.density,
                ids[segment.tensors[0]],
                self._layout.starts[i],
                tuple(pieces),
                self._shapes[i % len(self._lane.segments)],
            )
        return parts

    def take(self, buffers: Buffers) -> None:
        """Use `buffers` from now on, in turn with other groups."""
        if self.native:
            return
        self._message = buffers.message[: self.message_bytes]
        self._rows = buffers.rows[: self.rows_bytes].view(len(self._to), self.row_bytes)
        self._out = buffers.decoded[: self.numel]
        new = self._state.new if self._state is not None else {"accumulated": buffers.vector[: self.vector_numel]}
        segments = len(self._lane.segments)
        runs = {i: runs_of([self._at[name] for name in self._lane.segments[i].tensors]) for i in self._packed}
        self._sources = [(i // segments, run) for i in self._parts for run in runs[i % segments]]
        parts = tuple(replace(part, pieces=_cut(part.lo, runs[i % segments])) for i, part in self._parts.items())
        self._batch = Batch(parts, self._layout.sections(self._message), new)
        self._batch.memory, self._batch.seed = self._memory, self._seed
        self._batch.rank, self._batch.world_size = self._comm.rank, self._comm.world_size

    def reduce(
        self,
        output: torch.Tensor,
        inputs: torch.Tensor,
        share: float,
        natively: Callable[[], None],
        going_on: Collection[str],
        step: int,
    ) -> torch.Tensor | None:
        """Fill `output` with `share` of the sum.

        Return whether all numbers sent and received are finite, None if nothing is kept of them.
        """
        if self.native:
            self._comm.count("reduce_scatter", inputs)
            natively()
            return None
        chunks = inputs.view(self._comm.world_size, -1)
        if len(self._inside) > 1:
            chunks = self._summed(chunks)
        step = self._compress(chunks, going_on, step)
        self._decode(self._exchanged(), step, share)
        offset = 0
        for i in self._row.order:
            for name in self._lane.segments[i].tensors:
                lo, hi = self._at[name]
                output[lo:hi].copy_(self._out[offset : offset + hi - lo])
                offset += hi - lo
        if self._state is None:
            return None
        return all_finite((inputs, self._out))

    def commit(self, names: Collection[str]) -> None:
        """Make what this step left of the tensors `names` the committed memory."""
        if self._state is not None:
            self._state.commit(self._kept(names))

    def _kept(self, names: Collection[str]) -> set[str]:
        return {sent_to(name, rank) for name in names for rank in self._to}

    def _summed(self, chunks: torch.Tensor) -> torch.Tensor:
        """Return the sum over the node, in float32, of the chunks that this rank sends on, a row for each node."""
        size = len(self._inside)
        to_each = chunks.view(-1, size, chunks.shape[1]).transpose(0, 1).reshape(size, -1)
        return sum_of_part(self._comm, self._inside, to_each.view(-1), torch.float32).view(len(self._to), -1)

    def _exchanged(self) -> torch.Tensor:
        """Return the rows that other ranks have for this one, with its own, in the order of ranks."""
        if len(self._inside) == 1:
            return self._comm.all_to_all(self._rows).wait()
        received = self._rows.clone()
        others = {rank: at for at, rank in enumerate(self._to) if rank != self._comm.rank}
        self._comm.swap(
            {rank: self._rows[at] for rank, at in others.items()}, {rank: received[at] for rank, at in others.items()}
        ).wait()
        return received

    def _compress(self, chunks: torch.Tensor, going_on: Collection[str], step: int) -> int:
        """Write the messages to all ranks into the rows; return the number of the step that random numbers take."""
        batch, state = self._batch, self._state
        if state is not None:
            state.begin(self._kept(going_on))
            batch.new, batch.old = state.new, state.source
            step = state.step
        batch.step = step
        batch.grads = [chunks[rank, lo:hi] for rank, (lo, hi) in self._sources]
        compress(self._compressor, batch)
        whole, row = self._layout, self._row
        if row.dense.length:
            plain = whole.dense.of(self._message).view(len(self._to), -1)
            names = [name for i in row.order if self._lane.segments[i].dense for name in self._lane.segments[i].tensors]
            offset = 0
            for lo, hi in runs_of([self._at[name] for name in names]):
                plain[:, offset : offset + hi - lo].copy_(chunks[:, lo:hi])
                offset += hi - lo
        for kind in ("counts", "scales", "indices", "dense", "values", "codes"):
            section: Section = getattr(row, kind)
            if section.length:
                target = self._rows[:, section.offset : section.offset + section.length * section.dtype.itemsize]
                target.copy_(getattr(whole, kind).of(self._message).view(torch.uint8).view(len(self._rows), -1))
        return step

    def _decode(self, received: torch.Tensor, step: int, share: float) -> None:
        """Add up all ranks' messages in `_out`: compressed segments first, then dense ones."""
        self._out.zero_()
        own, segments = self._to.index(self._comm.rank), len(self._lane.segments)
        for rank, row in zip(self._to, received, strict=True):
            if self._compressor.sparse:
                positions = (self._row.indices.of(row) - own * self._packed_numel).clamp_(min=0)  # padding is at 0
                self._out.index_add_(0, positions, self._row.values.of(row).float().mul_(share))
            else:
                lo = 0
                for i in self._packed:
                    part = self._parts[own * segments + i]
                    ctx = Context(
                        step, part.tensor_id, rank, self._comm.world_size, part.density, self._seed, part.shapes
                    )
                    payload, hi = self._row.payload(row, i), lo + self._row.numel[i]
                    self._compressor.decompress_add(payload, self._out[lo:hi], ctx, scale=share)
                    lo = hi
            if self._row.dense.length:
                self._out[self._packed_numel :].add_(self._row.dense.of(row), alpha=share)


def _to_ranks(plan: Plan, lane: Lane, ranks: Sequence[int]) -> Plan:
    """Return the plan of a lane with the tensors and segments of the chunks of `ranks`, rank by rank."""
    tensors = tuple(
        replace(plan.by_name[name], name=sent_to(name, rank))
        for rank in ranks
        for name in sorted(lane.tensors, key=plan.order.__getitem__)
    )
    segments = tuple(
        replace(segment, tensors=tuple(sent_to(name, rank) for name in segment.tensors))
        for rank in ranks
        for segment in lane.segments
    )
    return Plan(plan.scheme, plan.world_size, tensors, (Bucket((Lane(lane.collective, segments),)),), ((0, 0),))


def _cut(lo: int, runs: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return pieces of the lengths of `runs`, one after the other from `lo`."""
    pieces = []
    for start, stop in runs:
        pieces.append((lo, lo + stop - start))
        lo += stop - start
    return tuple(pieces)
