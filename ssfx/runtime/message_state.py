"""What a message keeps between steps: the memory's flat buffers and the compressors' own state, both twice.

`old` is committed, `new` is written by the exchange under way. `commit` swaps them once an optimizer has stepped with
what was exchanged, so that a rollback costs nothing. The store sees the committed side by parameter name: it survives
re-planning and goes into checkpoints.
"""

from collections.abc import Collection, Iterator, Mapping

import torch

from ssfx.compressors import Compressor
from ssfx.compressors.batch import Part
from ssfx.compressors.memories import Memory
from ssfx.planning.plan import Lane
from ssfx.runtime.offload import HostSegment
from ssfx.runtime.store import COLLECTIVE, COMPRESSOR, THRESHOLD, Store

Buffers = dict[str, torch.Tensor]


class MessageState:
    """State of a message's compressed segments (`parts`, by position in it), in the store and in flat buffers.

    `initial` is the collective's state before the first step, thresholds as for a loss scale of 1. `first_step` is the
    number of the message's first step: later ones count what was committed, so that a compressor whose steps take turns
    misses no turn when an exchange is rolled back. What the store has replaces both if the message had the same first
    tensor and as many elements. Segments in `host` keep their memory in their own staging buffers.
    """

    def __init__(
        self,
        lane: Lane,
        parts: Mapping[int, Part],
        memory: Memory,
        compressor: Compressor | None,
        store: Store,
        device: torch.device,
        host: Mapping[int, HostSegment],
        initial: Buffers,
        first_step: int,
    ) -> None:
        self._names = {i: lane.segments[i].tensors for i in parts}
        self._parts, self._memory, self._store, self._host = parts, memory, store, host
        packed = sum(part.numel for part in parts.values())

        def flat() -> Buffers:
            return {buffer: torch.zeros(packed, dtype=torch.float32, device=device) for buffer in memory.buffers}

        self.new = flat()
        self.old = flat() if memory.stateful else {}
        self.source = self.old
        """What gradients are added to: the committed memory, or what an exchange before this one left in `new`."""
        self._partly = False
        self._step = 0
        self.compressor_old: dict[int, Buffers] = {}
        for i, part in parts.items():
            shapes = compressor.state_shapes(part.shapes) if compressor is not None else {}
            where = torch.device("cpu") if i in host else device
            self.compressor_old[i] = {
                name: torch.zeros(shape, dtype=torch.float32, device=where) for name, shape in shapes.items()
            }
        self.compressor_new = {i: {k: v.clone() for k, v in state.items()} for i, state in self.compressor_old.items()}
        self.collective_old = (
            {**initial, "numel": torch.tensor(packed), "step": torch.tensor(first_step)} if parts else {}
        )
        for name, value in initial.items():
            if (COLLECTIVE + name).startswith(THRESHOLD):
                value *= store.loss_scale
        self._first = lane.segments[next(iter(parts), 0)].tensors[0]
        elements = store.get(self._first, COLLECTIVE + "numel")
        for name in lane.tensors:
            if name != self._first or elements is None or int(elements) != packed:
                store.drop_all(name, COLLECTIVE)
        self.collective_new = {name: value.clone() for name, value in self.collective_old.items()}
        for name, buffer, view in self._committed():
            kept = store.get(name, buffer)
            if kept is not None and kept.numel() == view.numel():
                view.copy_(kept.view_as(view))
        self._publish()

    @property
    def step(self) -> int:
        """The number of the step under way: how many exchanges of this message led to the state it begins with."""
        return self._step

    def begin(self, going_on: Collection[str] = ()) -> None:
        """Start a step from the committed state; of tensors in `going_on` from what the exchange before it left.

        Their gradients were exchanged, are still there, and are added to: either both exchanges are committed, or none.
        """
        self._partly = False
        members = {i: any(name in going_on for name in names) for i, names in self._names.items()}
        again = any(members.values())
        self.source = self.new if again and self._memory.stateful else self.old
        for staged in self._host.values():
            staged.source = staged.new if again and self._memory.stateful else staged.old
        if not again:
            _copy(self.collective_old, self.collective_new)
        for i, state in self.compressor_old.items():
            if not members[i]:
                _copy(state, self.compressor_new[i])
        for i, part in self._parts.items() if again else ():
            self._pieces(i, part, [name not in going_on for name in self._names[i]], back=True)
        if self.collective_new:
            self._step = int(self.collective_new["step"])
            self.collective_new["step"] += 1

    def rest(self, segment: int, lo: int, hi: int) -> None:
        """Elements lo .. hi - 1 take part in this step as zeros; their residuals stay in the committed side only."""
        staged = self._host.get(segment)
        start, state = (self._parts[segment].lo, staged.new) if staged else (0, self.new)
        for buffer in state.values():
            buffer[lo - start : hi - start].zero_()

    def commit(self, names: Collection[str]) -> None:
        """Make what this step left of the tensors `names` the committed state; that of all others stays as it was.

        A segment's own state, and the collective's, follow as soon as one of their tensors does.
        """
        members = {i: [name in names for name in self._names[i]] for i in self._parts}
        if not any(map(any, members.values())):
            return
        if not self._partly and all(map(all, members.values())):
            self.compressor_old, self.compressor_new = self.compressor_new, self.compressor_old
            self.collective_old, self.collective_new = self.collective_new, self.collective_old
            if self._memory.stateful:
                self.old, self.new = self.new, self.old
                for staged in self._host.values():
                    staged.swap()
            self._publish()
            return
        self._partly = True
        _copy(self.collective_new, self.collective_old)
        for i, part in self._parts.items():
            if not any(members[i]):
                continue
            _copy(self.compressor_new[i], self.compressor_old[i])
            self._pieces(i, part, members[i])

    def restore(self, segment: int, name: str, where: torch.Tensor) -> None:
        """Elements of one tensor (flat, bool) of this step's memory are as in the committed one."""
        host, part = self._host.get(segment), self._parts[segment]
        start, new, old = (part.lo, host.new, host.old) if host else (0, self.new, self.old)
        lo, hi = part.pieces[self._names[segment].index(name)]
        for buffer in old:
            there = new[buffer][lo - start : hi - start]
            there.copy_(torch.where(where.to(there.device), old[buffer][lo - start : hi - start], there))

    def _pieces(self, segment: int, part: Part, wanted: Collection[bool], back: bool = False) -> None:
        """Copy the memory of the wanted tensors of a segment from `new` to `old`, or `back`."""
        host = self._host.get(segment)
        start, new, old = (part.lo, host.new, host.old) if host else (0, self.new, self.old)
        source, target = (old, new) if back else (new, old)
        for copied, (lo, hi) in zip(wanted, part.pieces, strict=True):
            for buffer in old if copied else ():
                target[buffer][lo - start : hi - start].copy_(source[buffer][lo - start : hi - start])

    def _publish(self) -> None:
        for name, buffer, view in self._committed():
            self._store.put(name, buffer, view)

    def _committed(self) -> Iterator[tuple[str, str, torch.Tensor]]:
        """Yield (parameter, buffer, committed view) of everything; a segment's own state is its first tensor's."""
        for name, value in self.collective_old.items():
            yield self._first, COLLECTIVE + name, value
        for i, part in self._parts.items():
            for name, value in self.compressor_old[i].items():
                yield self._names[i][0], COMPRESSOR + name, value
            if not self._memory.stateful:
                continue
            staged = self._host.get(i)
            start, state = (part.lo, staged.old) if staged else (0, self.old)
            for name, shape, (lo, hi) in zip(self._names[i], part.shapes, part.pieces, strict=True):
                for buffer in self._memory.buffers:
                    yield name, buffer, state[buffer][lo - start : hi - start].view(shape)


def _copy(source: Buffers, target: Buffers) -> None:
    for name, value in source.items():
        target[name].copy_(value)
