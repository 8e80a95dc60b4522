"""The lane of payloads that add up: an all-reduce of the value section, decoded once."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch

from ssfx.collectives.comm import Comm
from ssfx.compressors.memories import Memory
from ssfx.planning.plan import Lane, Plan
from ssfx.runtime.lane import Room
from ssfx.runtime.packed import PackedLane
from ssfx.runtime.store import Store


class SumLane(PackedLane):
    """Segments of one additive compressor; nothing dense is beside them."""

    def __init__(
        self, lane: Lane, plan: Plan, comm: Comm, device: torch.device, store: Store, memory: Memory,
        run_memory: Memory, first_step: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(lane, plan, comm, device, store, memory, run_memory, first_step)
        assert self.compressor is not None
        self.codec = self.compressor
        alone = len(self.packed) == 1
        self._used = self.codec.cycle(self._segment_shapes(plan, self.packed[0])) if alone else ()
        """How many values are sent at step 0, 1, ... and over again; empty: all of them in every step."""

    def start(self) -> None:
        """Issue the sum of the value section, after both rounds of a compressor that has two."""
        self.agree()
        values = self.layout.values.of(self.message)
        if self._used:
            values = values[: self._used[self.state.step % len(self._used)]]
        self.pending = self.collective.start(values, self.comm)

    def finish(self) -> list[torch.Tensor]:
        """Wait; return the sum, and what ranks agreed on before."""
        assert self.pending is not None
        return [self.pending.wait(), *self._proposed]

    def decode(self, grads: Mapping[str, torch.Tensor], room: Room) -> Collection[str]:
        """Write the average over ranks into `room`."""
        self.out = room.of(self.total)
        self.out.zero_()
        for i in self.packed:
            lo, hi = self._segment_at[i]
            ctx, payload = self.context(i, self.comm.rank), self.payloads[i]
            self.codec.received(payload, ctx)
            self.codec.decompress_add(payload, self.out[lo:hi], ctx, scale=1.0 / self.comm.world_size)
        return ()
