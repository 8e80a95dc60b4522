"""The replicate leg of HSDP: one group's gradients, summed over the replicas of a shard by the lanes of a plan."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from ssfx.runtime.lane import LaneExecutor, Room, StepKey
from ssfx.sharded.torch_fsdp import ShardGroup, local_shard


class ReplicaLeg:
    """One group of `fully_shard` and its lanes; what an exchange keeps back counts once an optimizer steps with it.

    `open` names the parameters whose averages no optimizer has stepped with yet.
    """

    def __init__(self, group: ShardGroup) -> None:
        self.group = group
        self.open: set[str] = set()
        self.discarded = 0
        self.undone = 0
        self._lanes: Sequence[LaneExecutor] = ()
        self._finite: torch.Tensor | None = None
        self._moved: torch.Tensor | int = 0
        """How many averages of the latest exchange were not zero."""

    def install(self, lanes: Sequence[LaneExecutor], room: Room, key: StepKey) -> None:
        """Exchange by `lanes` from now on, from the memory that they were made with."""
        self._lanes, self._room, self._key = lanes, room, key
        self.open, self._finite = set(), None

    def exchange(self, reduced: torch.Tensor) -> None:
        """Turn the shard's sums in `reduced` into averages over the replicas, in place."""
        views = self.group.views(reduced)
        going_on = self._settle()
        for lane in self._lanes:
            lane.begin(self._key, going_on)
            for index, segment in enumerate(lane.lane.segments):
                for name in segment.tensors:
                    lane.add(name, views[name])
                    if lane.arrived(index):
                        lane.compress(index)
            lane.start()
        received = [part for lane in self._lanes for part in lane.finish()]
        finite = torch.stack([torch.isfinite(part).all() for part in received]).all() if received else None
        if finite is not None and going_on and self._finite is not None:
            finite = finite & self._finite
        self._finite = finite
        for lane in self._lanes:
            lane.decode({}, self._room)
            for name in lane.lane.tensors:
                views[name].copy_(lane.result(name))
        self._moved = reduced.count_nonzero()
        self.open = set(self.group.names)

    def stepped(self, held: Collection[int]) -> None:
        """Commit what was kept back of the parameters with these ids, unless a received number was not finite."""
        names = {name for name, p in self.group.parameters() if name in self.open and id(p) in held}
        if not names:
            return
        self.open -= names
        if self._finite is not None and not bool(self._finite):
            self.undone += 1
            return
        for lane in self._lanes:
            lane.commit(names)

    def _settle(self) -> set[str]:
        """Return the open parameters whose averages are still in `.grad`: their exchange goes on with this one.

        Averages that are gone, or were all set to zeros, were thrown away: their memory is as before that exchange.
        """
        there = {name: p.grad for name, p in self.group.parameters() if name in self.open and p.grad is not None}
        if there and bool(self._moved) and not any(bool(local_shard(grad).count_nonzero()) for grad in there.values()):
            there = {}
        if self.open and not there:
            self.discarded += 1
        self.open = set()
        return set(there)
