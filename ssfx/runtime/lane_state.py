"""What a lane keeps between steps: the memory's flat buffers and the compressors' own state, both twice.

`old` is committed, `new` is written by the step under way; `commit` swaps them, so that a rollback costs nothing. The
store sees the committed side by parameter name: it survives re-planning and goes into checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from ssfx.compressors import Compressor
from ssfx.compressors.batch import Part
from ssfx.memories import Memory
from ssfx.planning.plan import Lane
from ssfx.runtime.offload import HostSegment
from ssfx.runtime.store import COLLECTIVE, COMPRESSOR, THRESHOLD, Store

Buffers = dict[str, torch.Tensor]


class LaneState:
    """State of a lane's compressed segments (`parts`, by position in the lane), in the store and in flat buffers.

    `own` is the collective's state before the first step, thresholds as for a loss scale of 1; what the store has
    replaces it if the lane had the same first tensor and as many elements.

    `total` elements of the memory's first buffer have room for the dense tensors too: the committed step's free buffer
    receives the decoded average. Segments in `host` keep their memory in their own staging buffers.
    """

    def __init__(
        self, lane: Lane, parts: Mapping[int, Part], total: int, memory: Memory, compressor: Compressor | None,
        store: Store, device: torch.device, host: Mapping[int, HostSegment], own: Buffers,
    ) -> None:  # fmt: skip
        self._names = {i: lane.segments[i].tensors for i in parts}
        self._parts, self._memory, self._store, self._host = parts, memory, store, host
        packed = sum(part.numel for part in parts.values())
        sizes = {buffer: packed if n else total for n, buffer in enumerate(memory.buffers)}

        def flat() -> Buffers:
            return {buffer: torch.zeros(size, dtype=torch.float32, device=device) for buffer, size in sizes.items()}

        self.new = flat()
        self.old = flat() if memory.stateful else {}
        # Without a memory there is no free buffer that could take the average.
        self._room = torch.zeros(total, dtype=torch.float32, device=device) if not memory.stateful else None
        self.compressor_old: dict[int, Buffers] = {}
        for i, part in parts.items():
            shapes = compressor.state_shapes(part.shapes) if compressor is not None else {}
            where = torch.device("cpu") if i in host else device
            self.compressor_old[i] = {
                name: torch.zeros(shape, dtype=torch.float32, device=where) for name, shape in shapes.items()
            }
        self.compressor_new = {i: {k: v.clone() for k, v in state.items()} for i, state in self.compressor_old.items()}
        self.lane_old = {**own, "numel": torch.tensor(packed)} if own else {}
        for name, value in own.items():
            if (COLLECTIVE + name).startswith(THRESHOLD):
                value *= store.loss_scale
        self._first = lane.segments[next(iter(parts), 0)].tensors[0]
        known = store.get(self._first, COLLECTIVE + "numel")
        for name in lane.tensors:
            if name != self._first or known is None or int(known) != packed:
                store.drop_all(name, COLLECTIVE)
        self.lane_new = {name: value.clone() for name, value in self.lane_old.items()}
        for name, buffer, view in self._committed():
            kept = store.get(name, buffer)
            if kept is not None and kept.numel() == view.numel():
                view.copy_(kept.view_as(view))
        self._publish()

    @property
    def out(self) -> torch.Tensor:
        """Flat buffer for the decoded average; valid after `commit`."""
        return self._room if self._room is not None else self.new[self._memory.buffers[0]]

    def begin(self) -> None:
        """Start a step: the new state of compressors and collective is the committed one until they change it."""
        for name, value in self.lane_old.items():
            self.lane_new[name].copy_(value)
        for i, state in self.compressor_old.items():
            for name, value in state.items():
                self.compressor_new[i][name].copy_(value)

    def commit(self) -> None:
        """Make this step's state the committed one."""
        self.compressor_old, self.compressor_new = self.compressor_new, self.compressor_old
        self.lane_old, self.lane_new = self.lane_new, self.lane_old
        if self._memory.stateful:
            self.old, self.new = self.new, self.old
            for staged in self._host.values():
                staged.swap()
        self._publish()

    def _publish(self) -> None:
        for name, buffer, view in self._committed():
            self._store.put(name, buffer, view)

    def _committed(self) -> Iterator[tuple[str, str, torch.Tensor]]:
        """Yield (parameter, buffer, committed view) of everything; a segment's own state is its first tensor's."""
        for name, value in self.lane_old.items():
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
