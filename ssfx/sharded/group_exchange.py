"""One group's exchange: sums over shards by a `ShardLeg`, over replicas by the messages of a plan, or one of them."""

from collections.abc import Callable, Collection, Sequence

import torch

from ssfx.runtime.message import Message, Room, StepKey
from ssfx.sharded.shard_leg import ShardLeg
from ssfx.sharded.torch_fsdp import ShardGroup, local_shard


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
        self._note(torch.stack([torch.isfinite(part).all() for part in received]).all() if received else None)
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
