"""One group's exchange: sums over shards by a `ShardLeg`, over replicas by the messages of a plan, or one of them.

Weights may be gathered in fewer bits: every rank sends its shards compressed, and decodes all ranks'. A rank decodes
what it sent itself, too, so that whole weights are equal on all ranks bit for bit; the sharded weights that the
optimizer steps stay exact. Weights are compressed, not what changed of them since the last gather: for that every rank
had to keep the last whole weights, which sharding is to save.
Source: QSDP (Markov et al. 2023) and the weights of ZeRO++ (Wang et al. 2023).
"""

from collections.abc import Callable, Collection, Sequence

import torch

from ssfx.collectives.comm import Comm
from ssfx.compressors import Compressor, Context, build
from ssfx.compressors.batch import Batch, Part, compress
from ssfx.planning.plan import Lane, Plan
from ssfx.runtime.message import Message, Room, StepKey, all_finite
from ssfx.runtime.message_layout import MessageLayout
from ssfx.sharded.legs import ShardLeg, places_of, runs_of
from ssfx.sharded.torch_fsdp import ShardGroup, local_shard
from ssfx.simulator.pricing.sharded_step import is_native, row_bytes

_ALONE = 1
"""Ranks that a message is summed over: casts divide by it."""


class WeightGather:
    """The gather of one group by a lane of `plan`, whose tensors are all its shards, by `comm.world_size` ranks.

    Memory is taken for a call and given back: gathers may be under way in several streams.
    """

    def __init__(self, group: ShardGroup, lane: Lane, plan: Plan, comm: Comm, seed: int) -> None:
        self._native, self._comm, self._seed = is_native(lane), comm, seed
        if self._native:
            return
        self._layout, self._row_bytes = MessageLayout(lane, plan), row_bytes(plan, lane)
        places, ids = places_of(group.whole_shapes), {name: i for i, name in enumerate(sorted(plan.by_name))}
        (spec,) = {segment.compressor for segment in lane.segments if segment.compressor is not None}
        self._compressor: Compressor = build(spec)
        self._parts: dict[int, Part] = {}
        self._runs: dict[int, list[tuple[int, int]]] = {}
        self._plain: list[tuple[int, int]] = []
        self._numel = 0
        for i in self._layout.order:
            tensors = lane.segments[i].tensors
            runs = runs_of([places[name] for name in tensors])
            if lane.segments[i].dense:
                self._plain += runs
                continue
            lo, self._numel = self._numel, self._numel + self._layout.numel[i]
            self._runs[i] = runs
            self._parts[i] = Part(
                lo,
                self._numel,
                self._layout.layouts[i],
                lane.segments[i].density,
                ids[tensors[0]],
                self._layout.starts[i],
                ((lo, self._numel),),
                tuple(plan.by_name[name].shape for name in tensors),
            )

    def gather(self, output: torch.Tensor, inputs: torch.Tensor, natively: Callable[[], None], step: int) -> None:
        """Fill `output`, the shards of all ranks, from `inputs`, this rank's, which are a part of it.

        What is random about it depends on `step`, the number of steps so far, so that a step gathers the same twice.
        """
        if self._native:
            self._comm.count("all_gather", inputs)
            natively()
            return
        vector = torch.empty(self._numel, dtype=torch.float32, device=inputs.device)
        message = torch.zeros(self._row_bytes, dtype=torch.uint8, device=inputs.device)
        for i, part in self._parts.items():
            _move(inputs, self._runs[i], vector[part.lo : part.hi], out=True)
        batch = Batch(tuple(self._parts.values()), self._layout.sections(message), {"accumulated": vector})
        batch.seed, batch.step, batch.rank, batch.world_size = self._seed, step, self._comm.rank, _ALONE
        compress(self._compressor, batch)
        if self._plain:
            _move(inputs, self._plain, self._layout.dense.of(message), out=True)
        received = self._comm.all_gather(message).wait()
        for rank, (row, shards) in enumerate(zip(received, output.view(len(received), -1), strict=True)):
            self._decode(row, rank, step, vector.zero_())
            for i, part in self._parts.items():
                _move(shards, self._runs[i], vector[part.lo : part.hi], out=False)
            if self._plain:
                _move(shards, self._plain, self._layout.dense.of(row), out=False)

    def _decode(self, row: torch.Tensor, rank: int, step: int, out: torch.Tensor) -> None:
        for i, part in self._parts.items():
            ctx = Context(step, part.tensor_id, rank, _ALONE, part.density, self._seed, part.shapes)
            self._compressor.decompress_add(self._layout.payload(row, i), out[part.lo : part.hi], ctx)


def _move(shards: torch.Tensor, runs: list[tuple[int, int]], packed: torch.Tensor, *, out: bool) -> None:
    """Copy runs of a rank's shards one after the other into `packed`, or from there into their places."""
    at = 0
    for lo, hi in runs:
        mine, theirs = shards[lo:hi], packed[at : at + hi - lo]
        (theirs if out else mine).copy_(mine if out else theirs)
        at += hi - lo


class GroupExchange:
    """One group of `fully_shard`; its residuals count once an optimizer steps with it.

    `open` names the parameters whose averages no optimizer has stepped with yet.
    """

    def __init__(self, group: ShardGroup) -> None:
        self.group = group
        self.open: set[str] = set()
        self.discarded = 0
        self.undone = 0
        self.shard_leg: ShardLeg | None = None
        self._messages: Sequence[Message] = ()
        self._going_on: set[str] = set()
        """Parameters whose averages were still in `.grad` when the latest exchange began."""
        self._finite: torch.Tensor | None = None
        self._largest: torch.Tensor | None = None
        """The largest average of each parameter in the latest exchange, in the order of the group's names."""

    def install(self, messages: Sequence[Message], shard_leg: ShardLeg | None, room: Room, key: StepKey) -> None:
        """Exchange by `messages` and `shard_leg` from now on, from the memory that they were made with."""
        self._messages, self.shard_leg, self._room, self._key = messages, shard_leg, room, key
        self.open, self._finite = set(), None

    def reduce_scatter(
        self, output: torch.Tensor, inputs: torch.Tensor, share: float, natively: Callable[[], None], step: int
    ) -> None:
        """Fill `output`, this rank's shards, with `share` of the sum of the chunks that all ranks have for it."""
        leg = self.shard_leg
        assert leg is not None
        self.group.views(output)
        if self.group.accumulating:  # sums over shards of earlier passes wait in torch for the sum over replicas
            going_on: Collection[str] = self.group.names
        else:
            going_on = self._begin()
        self._note(leg.reduce(output, inputs, share, natively, going_on, step))
        if not self._messages:
            self._end(output)

    def all_reduce(self, reduced: torch.Tensor) -> None:
        """Turn the shard's sums in `reduced` into averages over the replicas, in place; into sums if torch divides."""
        views = self.group.views(reduced)
        if self.shard_leg is None:
            self._begin()
        for message in self._messages:
            message.begin(self._key, self._going_on)
            for index, segment in enumerate(message.lane.segments):
                for name in segment.tensors:
                    message.add(name, views[name])
                    if message.arrived(index):
                        message.compress(index)
            message.start()
        received = [part for message in self._messages for part in message.finish()]
        self._note(all_finite(received) if received else None)
        for message in self._messages:
            message.decode({}, self._room)
            for name in message.lane.tensors:
                views[name].copy_(message.result(name))
        if self.group.divides_by is not None:
            reduced.mul_(self.group.replicas.size())
        self._end(reduced)

    def stepped(self, held: Collection[int]) -> None:
        """Commit the residuals of the parameters with these ids, unless an exchanged number was not finite."""
        names = {name for name, p in self.group.parameters() if name in self.open and id(p) in held}
        if not names:
            return
        self.open -= names
        if self._finite is not None and not bool(self._finite):
            self.undone += 1
            return
        for message in self._messages:
            message.commit(names)
        if self.shard_leg is not None:
            self.shard_leg.commit(names)

    def _begin(self) -> set[str]:
        self._going_on = self._settle()
        if not self._going_on:
            self._finite = None
        return self._going_on

    def _note(self, finite: torch.Tensor | None) -> None:
        if finite is not None:
            self._finite = finite if self._finite is None else finite & self._finite

    def _end(self, averages: torch.Tensor) -> None:
        views = self.group.views(averages)
        self._largest = torch.stack(torch._foreach_norm([views[name] for name in self.group.names], float("inf")))
        self.open = set(self.group.names)

    def _settle(self) -> set[str]:
        """Return the open parameters whose averages are still in `.grad`: their exchange goes on with this one.

        Averages that are gone, or were all set to zeros, were thrown away: their memory is as before that exchange.
        """
        there = {name for name, p in self.group.parameters() if name in self.open and p.grad is not None}
        there -= self._zeroed(there)
        if self.open and not there:
            self.discarded += 1
        self.open = set()
        return there

    def look_for_cancelled(self, held: Collection[int]) -> None:
        """Before an optimizer steps with the parameters of these ids: what a script has set to zeros is not kept."""
        if self.open:
            self.open -= self._zeroed({n for n, p in self.group.parameters() if n in self.open and id(p) in held})

    def _zeroed(self, names: Collection[str]) -> set[str]:
        """Return those of `names` whose averages were no zeros, and whose gradients are.

        If these are all that were no zeros, a script has set all gradients to zeros: those that were zeros, too.
        """
        grads = {
            name: shard
            for name, p in self.group.parameters()
            if name in names and p.grad is not None and (shard := local_shard(p.grad)).numel()
        }
        if not grads or self._largest is None:
            return set()
        now = dict(
            zip(grads, torch.stack(torch._foreach_norm(list(grads.values()), float("inf"))).tolist(), strict=True)
        )
        written = dict(zip(self.group.names, self._largest.tolist(), strict=True))
        zeros = {name for name, value in now.items() if value == 0.0}
        cancelled = {name for name in zeros if written[name] != 0.0}
        return zeros if cancelled and len(zeros) == len(now) else cancelled
