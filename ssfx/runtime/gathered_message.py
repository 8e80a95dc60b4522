"""Messages whose payloads do not add up: every rank gets all of them and decodes them one after the other."""

from collections.abc import Collection, Mapping

import torch

from ssfx.collectives.comm import Comm
from ssfx.compressors.kernels import writes_sums
from ssfx.compressors.memories import Memory
from ssfx.planning.plan import Lane, Plan
from ssfx.runtime.message import Room
from ssfx.runtime.packed_message import PackedMessage
from ssfx.runtime.store import Store


class GatheredMessage(PackedMessage):
    """Segments of one compressor, or of none, in messages of a fixed size."""

    def __init__(
        self, lane: Lane, plan: Plan, comm: Comm, device: torch.device, store: Store, memory: Memory,
        run_memory: Memory, first_step: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(lane, plan, comm, device, store, memory, run_memory, first_step)
        names = (name for i in self.packed for name in lane.segments[i].tensors)
        self._filled = [name for name in names if plan.by_name[name].numel]
        self._rows: torch.Tensor | None = None

    def start(self) -> None:
        """Issue the gather, after both rounds of a compressor that has two."""
        self.agree()
        self.pending = self.collective.start(self._outgoing(), self.comm)

    def _outgoing(self) -> torch.Tensor:
        return self.data

    def finish(self) -> list[torch.Tensor]:
        """Wait; return the numbers that were received."""
        assert self.pending is not None
        received = self._incoming(self.pending.wait())
        if received.stride(0) % 4:  # 16-bit values may end a row on an odd place; typed views need aligned rows
            aligned = received.new_zeros(received.shape[0], -(-received.shape[1] // 4) * 4)
            aligned[:, : received.shape[1]] = received
            received = aligned[:, : received.shape[1]]
        self._rows = received
        parts = (self.layout.values, self.layout.dense, self.layout.scales)
        return [part.of(received) for part in parts if part.length]

    def _incoming(self, rows: torch.Tensor) -> torch.Tensor:
        return rows

    def decode(self, grads: Mapping[str, torch.Tensor], room: Room) -> Collection[str]:
        """Write the average over ranks, adding ranks in order so that all replicas stay bit-identical.

        Pairs go straight into the gradients where a compiled kernel can; everything else goes into `room`.
        """
        assert self._rows is not None
        self.out = room.of(self.total)
        vote = self.compressor is not None and self.compressor.vote
        share = 1.0 if vote else 1.0 / self.comm.world_size  # votes add up exactly
        packed, dense = self.out[: self._dense_at], self.out[self._dense_at :]
        written = self._written_straight(grads)
        (dense if written else self.out).zero_()
        for rank, row in enumerate(self._rows):
            if not written:
                self._add(rank, row, packed, share)
            if self.layout.dense.length:
                dense.add_(self.layout.dense.of(row), alpha=share)
        if vote:
            packed.sign_()
        return written

    def _add(self, rank: int, row: torch.Tensor, out: torch.Tensor, share: float) -> None:
        """Add one rank's compressed segments: pairs of all segments at once, codes segment by segment."""
        if self.compressor is None:
            return
        if self.compressor.sparse:
            values = self.layout.values.of(row).float().mul(share)  # not in place: virtual ranks share what is gathered
            out.index_add_(0, self.layout.indices.of(row), values)
            return
        for i in self.packed:
            lo, hi = self._segment_at[i]
            payload = self.layout.payload(row, i)
            self.compressor.decompress_add(payload, out[lo:hi], self.context(i, rank), scale=share)

    def _written_straight(self, grads: Mapping[str, torch.Tensor]) -> Collection[str]:
        """Decode pairs into `grads` and return their tensors; nothing and none if that cannot be done."""
        if self.compressor is None or not self.compressor.sparse or self.compressor.vote:
            return ()
        if not writes_sums(self._device) or not all(name in grads for name in self._filled):
            return ()
        targets = [grads[name] for name in self._filled]
        if not all(t.dtype == torch.float32 and t.is_contiguous() and t.device == self._device for t in targets):
            return ()
        from ssfx.compressors.kernels.cpu.decode import write_sums  # late: it compiles

        assert self._rows is not None
        values = self.layout.values.of(self._rows).float().mul(1.0 / self.comm.world_size)
        starts = [self._slots[name][0] for name in self._filled]
        indices = self.layout.indices.of(self._rows).contiguous()
        write_sums(targets, starts, indices.numpy(), values.numpy())
        return self._filled


class VariableGatheredMessage(GatheredMessage):
    """As its base, in messages without padding: ranks send as many entries as they have."""

    def _outgoing(self) -> torch.Tensor:
        return self.layout.trim(self.data, self.packed)

    def _incoming(self, rows: torch.Tensor) -> torch.Tensor:
        return self.layout.untrim(rows, self.packed)
