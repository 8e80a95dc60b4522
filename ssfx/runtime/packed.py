"""The lane of compressed segments: one message of counts, indices, values and codes, with dense tensors beside them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import torch

from ssfx.collectives.comm import Comm
from ssfx.compressors import Context, Payload, build
from ssfx.compressors.batch import Batch, Part, compress, propose
from ssfx.kernels import accelerator, writes_sums
from ssfx.memories import Memory
from ssfx.planning.plan import Lane, Plan
from ssfx.runtime.lane import Room, StepKey
from ssfx.runtime.lane_state import LaneState
from ssfx.runtime.message import MessageLayout
from ssfx.runtime.offload import HostSegment
from ssfx.runtime.sent_counts import SentCounts
from ssfx.runtime.store import Store


@dataclass
class _Group:
    """Segments that are compressed by one call, when the last one's gradients are there."""

    batch: Batch
    segments: list[int]
    names: list[str]
    waiting: int


class PackedLane(SentCounts):
    """Compressed segments (and dense ones beside them) in one message.

    `state` keeps the memory twice, before and after the step under way: a step that no optimizer takes is undone.
    """

    def __init__(
        self, lane: Lane, plan: Plan, comm: Comm, device: torch.device, store: Store, memory: Memory,
        first_step: int = 0, run_memory: Memory | None = None,
    ) -> None:  # fmt: skip
        """`memory` is that of the lane; what `run_memory` kept of its tensors under an earlier plan is sent with them.

        None: it is the same. `first_step`: see `LaneState`.
        """
        super().__init__(lane, plan, comm)
        self.memory = memory
        self.layout = MessageLayout(lane, plan)
        self.nbytes = self.layout.nbytes
        self.message = torch.zeros(self.nbytes, dtype=torch.uint8, device=device)
        self.packed = [i for i in self.layout.order if not lane.segments[i].dense]
        spec = lane.segments[self.packed[0]].compressor if self.packed else None
        self.compressor = build(spec) if spec else None
        one = self.compressor is not None and len(self.packed) == 1
        self._cycle = (
            self.compressor.cycle(self._segment_shapes(plan, self.packed[0])) if one and self.compressor else ()
        )
        self._twice = self.compressor is not None and self.compressor.rounds == 2
        self.blocking = self.blocking or self._twice
        self._device = device
        self._slots: dict[str, tuple[int, int]] = {}
        self._shapes = {name: plan.by_name[name].shape for name in lane.tensors}
        self._segment_at: dict[int, tuple[int, int]] = {}
        self._segment_of = {name: i for i, segment in enumerate(lane.segments) for name in segment.tensors}
        offset = 0
        for i in self.layout.order:
            start = offset
            for name in lane.segments[i].tensors:
                self._slots[name] = (offset, offset + plan.by_name[name].numel)
                offset += plan.by_name[name].numel
            self._segment_at[i] = (start, offset)
        self.total = offset
        self.packed_total = sum(self.numel[i] for i in self.packed)
        self._sparse_names = [
            name for i in self.packed for name in lane.segments[i].tensors if plan.by_name[name].numel
        ]
        self.payloads: dict[int, Payload] = {i: self.layout.payload(self.message, i) for i in self.packed}
        self._grads: dict[str, torch.Tensor | None] = {}
        parts = self._parts(plan)
        hosted = [i for i in self.packed if lane.segments[i].placement == "host"]
        self.host: dict[int, HostSegment] = {}
        if accelerator.queued(device):
            self.host = {i: HostSegment(parts[i], memory) for i in hosted}
        own = self._own_state(self.packed_total)
        self.state = LaneState(lane, parts, memory, self.compressor, store, device, self.host, own, first_step)
        together = [i for i in self.packed if i not in hosted]
        self._groups: dict[int, _Group] = {}
        for members in [together, *([i] for i in hosted)]:
            batch = Batch(tuple(parts[i] for i in members), self.layout.sections(self.message), self.state.new)
            names = [name for i in members for name in lane.segments[i].tensors]
            self._groups.update(dict.fromkeys(members, _Group(batch, members, names, len(members))))
        self._dense = self.layout.dense.of(self.message)
        self._dense_at = self.packed_total
        plain = [name for i in self.layout.order if lane.segments[i].dense for name in lane.segments[i].tensors]
        self._plain = frozenset(plain)
        kept = plain if memory.stateful else list(lane.tensors)
        self._collect_carried(kept, store, run_memory or memory, device)
        self._rows: torch.Tensor | None = None

    def _parts(self, plan: Plan) -> dict[int, Part]:
        ids = {name: i for i, name in enumerate(sorted(plan.by_name))}
        parts = {}
        for i in self.packed:
            segment = self.lane.segments[i]
            pieces = tuple(self._slots[name] for name in segment.tensors)
            tensor_id, starts = ids[segment.tensors[0]], self.layout.starts[i]
            lo, hi = self._segment_at[i]
            shapes = self._segment_shapes(plan, i)
            parts[i] = Part(lo, hi, self.layout.layouts[i], segment.density, tensor_id, starts, pieces, shapes)
        return parts

    def _segment_shapes(self, plan: Plan, segment: int) -> tuple[tuple[int, ...], ...]:
        return tuple(plan.by_name[name].shape for name in self.lane.segments[segment].tensors)

    def add(self, name: str, grad: torch.Tensor | None) -> None:
        """Take one tensor in: a gradient that is compressed later, or the plain values of a dense one."""
        lo, hi = self._slots[name]
        carried = self._carry_of(name)
        if name in self._plain:
            target = self._dense[lo - self._dense_at : hi - self._dense_at]
            if grad is None:
                target.zero_()
            else:
                target.view(self._shapes[name]).copy_(grad)
            if carried is not None:
                target.add_(carried.view(-1))
            return
        if name in self.resting:
            self.state.rest(self._segment_of[name], lo, hi)
            self._grads[name] = None
            return
        flat = torch.zeros(hi - lo, dtype=torch.float32, device=self._device) if grad is None else grad.reshape(-1)
        self._grads[name] = flat if carried is None else flat + carried.view(-1)

    def begin(self, key: StepKey, going_on: Collection[str] = ()) -> None:
        """Reset for a new step."""
        super().begin(key, going_on)
        self.state.begin(going_on)
        for group in self._groups.values():
            group.waiting = len(group.batch.parts)

    def compress(self, segment: int) -> None:
        """Note that a segment is complete; the last one of a batch fills their payloads and updates the memory.

        What is not finite reaches every receiver as NaN or Inf in the payload.
        """
        group = self._complete(segment)
        if group is None or self.compressor is None:
            return
        if self._twice:
            propose(self.compressor, group.batch)
        else:
            compress(self.compressor, group.batch)

    def _complete(self, segment: int) -> _Group | None:
        """Count one segment; return its group, with all that its call needs, when that was the last one."""
        group = self._groups.get(segment)
        if group is None:
            return None
        group.waiting -= 1
        if group.waiting:
            return None
        batch = group.batch
        batch.new, batch.old, batch.memory = self.state.new, self.state.source, self.memory
        batch.grads = [self._grads.pop(name) for name in group.names]
        self._key(batch, group.segments)
        return group

    def _own_state(self, numel: int) -> dict[str, torch.Tensor]:
        """Return the collective's state before the first step."""
        return {}

    def _key(self, batch: Batch, segments: list[int]) -> None:
        batch.states = [self.state.compressor_new[i] for i in segments]
        batch.step, batch.seed = self.state.step, self.key.seed
        batch.rank, batch.world_size = self.comm.rank, self.comm.world_size

    def offload(
        self, segment: int, grads: dict[str, torch.Tensor | None], stream: torch.Stream | None
    ) -> Callable[[], list[torch.Event]]:
        """As the general case; on a GPU the gradients are fetched to pinned memory on a side stream first."""
        staged = self.host.get(segment)
        if staged is None or stream is None or self.compressor is None:
            return super().offload(segment, grads, stream)
        lo = self._segment_at[segment][0]
        pieces = [(self._slots[name][0] - lo, self._slots[name][1] - lo, grad) for name, grad in grads.items()]
        fetched = staged.fetch(pieces, stream)
        compressor = self.compressor
        self._key(staged.batch, [segment])
        names = self.lane.segments[segment].tensors
        resting = [name in self.resting for name in names]
        for name in self.resting.intersection(names):
            self.state.rest(segment, *self._slots[name])

        def work() -> list[torch.Event]:
            staged.compress(fetched, compressor, resting)
            staged.ship(self.payloads[segment], stream)
            return [accelerator.event(stream.device, stream=stream)]

        return work

    def _context(self, segment: int, rank: int) -> Context:
        """Return what decoding a segment may depend on: its state is the one that this step leaves."""
        spec = self.lane.segments[segment]
        return Context(
            step=self.state.step,
            tensor_id=self.key.tensor_ids[spec.tensors[0]],
            rank=rank,
            world_size=self.comm.world_size,
            density=spec.density,
            seed=self.key.seed,
            shapes=tuple(self._shapes[name] for name in spec.tensors),
            state=self.state.compressor_new[segment],
        )

    def start(self) -> None:
        """Issue the exchange: the value section as a sum, or the whole message as a gather.

        With a compressor of two rounds, first the sum of what all ranks propose, then what they compress with it.
        """
        if self._twice and self.compressor is not None:
            self.comm.all_reduce(self.layout.first.of(self.message), op=self.compressor.combine).wait()
            for batch in {id(group): group.batch for group in self._groups.values()}.values():
                compress(self.compressor, batch)
        if self.collective.additive_only:
            values = self.layout.values.of(self.message)
            if self._cycle:
                values = values[: self._cycle[self.state.step % len(self._cycle)]]
            self.pending = self.collective.start(values, self.comm)
        elif self.collective.variable:
            self.pending = self.collective.start(self.layout.trim(self.message, self.packed), self.comm)
        else:
            self.pending = self.collective.start(self.message, self.comm)

    def finish(self) -> list[torch.Tensor]:
        """Wait; return the numbers that were received."""
        assert self.pending is not None
        received = self.pending.wait()
        if self.collective.additive_only:
            return [received, self.layout.first.of(self.message)] if self._twice else [received]
        if self.collective.variable:
            received = self.layout.untrim(received, self.packed)
        if received.stride(0) % 4:  # 16-bit values may end a row on an odd place; typed views need aligned rows
            aligned = received.new_zeros(received.shape[0], -(-received.shape[1] // 4) * 4)
            aligned[:, : received.shape[1]] = received
            received = aligned[:, : received.shape[1]]
        self._rows = received
        parts = (self.layout.values, self.layout.dense, self.layout.scales)
        return [part.of(received) for part in parts if part.length]

    def commit(self, names: Collection[str]) -> None:
        """Make what this step left of the tensors `names` the committed memory."""
        super().commit(names)
        self.state.commit(names)

    def kept_squares(self, buffer: str) -> float:
        """Return the squared norm of what this step left in a memory's buffer, committed or not."""
        return self.state.squares(buffer)

    def decode(self, grads: Mapping[str, torch.Tensor], room: Room) -> Collection[str]:
        """Write the average over ranks, adding ranks in order so that all replicas stay bit-identical.

        Gathered pairs go straight into the gradients where a compiled kernel can; everything else goes into `room`.
        """
        written = self._written_straight(grads)
        vote = self.compressor is not None and self.compressor.vote
        self.out, share = room.of(self.total), 1.0 if vote else 1.0 / self.comm.world_size  # votes add up exactly
        out = self.out[self._dense_at :] if written else self.out
        out.zero_()
        if self.collective.additive_only:
            assert self.compressor is not None
            for i in self.packed:
                lo, hi = self._segment_at[i]
                ctx = self._context(i, self.comm.rank)
                self.compressor.received(self.payloads[i], ctx)
                self.compressor.decompress_add(self.payloads[i], out[lo:hi], ctx, scale=share)
            return ()
        assert self._rows is not None
        for rank in range(self.comm.world_size):
            row = self._rows[rank]
            if written:
                if self.layout.dense.length:
                    out.add_(self.layout.dense.of(row), alpha=share)
                continue
            if self.compressor is not None and self.compressor.sparse:
                values = self.layout.values.of(row).float().mul_(share)
                out.index_add_(0, self.layout.indices.of(row), values)
            elif self.compressor is not None:
                for i in self.packed:
                    lo, hi = self._segment_at[i]
                    ctx = self._context(i, rank)
                    self.compressor.decompress_add(self.layout.payload(row, i), out[lo:hi], ctx, scale=share)
            if self.layout.dense.length:
                out[self._dense_at :].add_(self.layout.dense.of(row), alpha=share)
        if self.compressor is not None and self.compressor.vote:
            out[: self._dense_at].sign_()
        return written

    def _written_straight(self, grads: Mapping[str, torch.Tensor]) -> Collection[str]:
        """Decode gathered pairs into `grads` and return their tensors; nothing and none if that cannot be done."""
        if self.compressor is None or not self.compressor.sparse or self.compressor.vote:
            return ()
        if (
            self.collective.additive_only
            or not writes_sums(self._device)
            or not all(name in grads for name in self._sparse_names)
        ):
            return ()
        targets = [grads[name] for name in self._sparse_names]
        if not all(t.dtype == torch.float32 and t.is_contiguous() and t.device == self._device for t in targets):
            return ()
        from ssfx.kernels.cpu.decode import write_sums  # late: it compiles

        assert self._rows is not None
        values = self.layout.values.of(self._rows).float().mul(1.0 / self.comm.world_size)
        starts = [self._slots[name][0] for name in self._sparse_names]
        indices = self.layout.indices.of(self._rows).contiguous()
        write_sums(targets, starts, indices.numpy(), values.numpy())
        return self._sparse_names

    def result(self, name: str) -> torch.Tensor:
        """Return the averaged gradient."""
        lo, hi = self._slots[name]
        return self.out[lo:hi].view(self._shapes[name])
