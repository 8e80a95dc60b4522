"""Messages of compressed segments: gradients go into data and memory, in as few calls as possible; gathered messages.

The data are counts, indices, values and codes of all segments, and dense tensors. What a message really holds in the
latest step is counted: elements, density of each segment, tensors that were left out.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ssfx.collectives.comm import Comm
from ssfx.compressors import Compressor, Context, Payload, build
from ssfx.compressors.batch import Batch, Part, compress, propose
from ssfx.compressors.kernels import writes_sums
from ssfx.compressors.kernels.narrow import cut_values
from ssfx.compressors.memories import Memory
from ssfx.core import accelerator
from ssfx.planning.plan import Lane, Plan
from ssfx.runtime.message import Carried, Message, Room, StepKey
from ssfx.runtime.message_layout import MessageLayout
from ssfx.runtime.message_state import Buffers, MessageState
from ssfx.runtime.offload import HostSegment
from ssfx.runtime.store import Store


@dataclass
class _Group:
    """Segments that are compressed by one call, when the last one's gradients are there."""

    batch: Batch
    segments: list[int]
    names: list[str]
    waiting: int


class PackedMessage(Message):
    """Compressed and dense segments in one message; each kind adds how messages are exchanged.

    `state` keeps the memory twice, before and after the step under way: a step that no optimizer takes is undone.
    """

    out: torch.Tensor
    """The averages of all tensors, flat, once `decode` has written them."""

    def __init__(
        self,
        lane: Lane,
        plan: Plan,
        comm: Comm,
        device: torch.device,
        store: Store,
        memory: Memory,
        run_memory: Memory,
        first_step: int = 0,
        initial: Buffers | None = None,
    ) -> None:
        """`memory` is the message's; what `run_memory` kept of its tensors under an earlier plan is sent with them.

        `first_step` and `initial`: see `MessageState`.
        """
        super().__init__(lane, plan, comm)
        self.memory = memory
        self.layout = MessageLayout(lane, plan)
        self.nbytes = self.layout.nbytes
        self.data = torch.zeros(self.nbytes, dtype=torch.uint8, device=device)
        self.packed = [i for i in self.layout.order if not lane.segments[i].dense]
        spec = lane.segments[self.packed[0]].compressor if self.packed else None
        self.compressor = build(spec) if spec else None
        rounds = self.compressor.rounds if self.compressor is not None else 1
        self._call: Callable[[Compressor, Batch], None] = compress if rounds == 1 else propose
        self._proposed = [self.layout.first.of(self.data)] if rounds == 2 else []
        """The section that ranks combine before they compress, of a compressor of two rounds."""
        self.blocking = self.blocking or rounds == 2
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
        self.payloads: dict[int, Payload] = {i: self.layout.payload(self.data, i) for i in self.packed}
        self._grads: dict[str, torch.Tensor | None] = {}
        parts = self._parts(plan)
        hosted = [i for i in self.packed if lane.segments[i].placement == "host"]
        self.host: dict[int, HostSegment] = {}
        if accelerator.queued(device):
            self.host = {i: HostSegment(parts[i], memory) for i in hosted}
        self.state = MessageState(
            lane, parts, memory, self.compressor, store, device, self.host, initial or {}, first_step
        )
        together = [i for i in self.packed if i not in hosted]
        self._groups: dict[int, _Group] = {}
        for members in [together, *([i] for i in hosted)]:
            batch = Batch(tuple(parts[i] for i in members), self.layout.sections(self.data), self.state.new)
            names = [name for i in members for name in lane.segments[i].tensors]
            self._groups.update(dict.fromkeys(members, _Group(batch, members, names, len(members))))
        self._dense = self.layout.dense.of(self.data)
        self._dense_at = self.packed_total
        plain = [name for i in self.layout.order if lane.segments[i].dense for name in lane.segments[i].tensors]
        self._plain = frozenset(plain)
        self._carried = Carried(plain if memory.stateful else lane.tensors, store, run_memory, device)

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
        carried = None if name in self.resting else self._carried.of(name)
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
        self._carried.begin(going_on)
        self.state.begin(going_on)
        for group in self._groups.values():
            group.waiting = len(group.batch.parts)

    def compress(self, segment: int) -> None:
        """Note that a segment is complete; the last one of a batch fills their payloads and updates the memory.

        What is not finite reaches every receiver as NaN or Inf in the payload.
        """
        group = self._groups.get(segment)
        if group is None or self.compressor is None:
            return
        group.waiting -= 1
        if group.waiting:
            return
        batch = group.batch
        batch.new, batch.old, batch.memory = self.state.new, self.state.source, self.memory
        batch.grads = [self._grads.pop(name) for name in group.names]
        self._key(batch, group.segments)
        before = cut_values()
        self._call(self.compressor, batch)
        self.cut_values += cut_values() - before

    def agree(self) -> None:
        """Where the compressor has two rounds: add up what all ranks propose, then compress with it."""
        for section in self._proposed:
            assert self.compressor is not None
            self.comm.all_reduce(section).wait()
            before = cut_values()
            for batch in {id(group): group.batch for group in self._groups.values()}.values():
                compress(self.compressor, batch)
            self.cut_values += cut_values() - before

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

    def context(self, segment: int, rank: int) -> Context:
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

    def commit(self, names: Collection[str]) -> None:
        """Make what this step left of the tensors `names` the committed memory."""
        self._carried.commit(names)
        self.state.commit(names)

    def restore(self, name: str, where: torch.Tensor) -> None:
        """Elements of one tensor are kept as before this step."""
        if name in self._segment_of and name not in self._plain:
            self.state.restore(self._segment_of[name], name, where)

    def result(self, name: str) -> torch.Tensor:
        """Return the averaged gradient."""
        lo, hi = self._slots[name]
        return self.out[lo:hi].view(self._shapes[name])

    def sent_elements(self) -> int:
        """Return this rank's count: reported by the compressor where it varies, else fixed by the layout."""
        return sum(self.numel) - self.packed_total + sum(self._counts())

    def density_ratios(self) -> list[float]:
        """Return achieved over target density of each segment that is to send a fraction, but at least one element."""
        densities = [self.lane.segments[i].density for i in self.packed]
        targets = [density * self.numel[i] for i, density in zip(self.packed, densities, strict=True)]
        counted = zip(self._counts(), targets, densities, strict=True)
        return [sent / target for sent, target, density in counted if density < 1 and target >= 1]

    def _counts(self) -> list[int]:
        """Return the elements of each compressed segment; all counts are read at once, which waits for a GPU once."""
        counts = self.layout.counts.of(self.data).tolist()
        sent = []
        for i in self.packed:
            layout, at = self.layout.layouts[i], self.layout.starts[i].counts
            fixed = layout.values or layout.selected or self.numel[i]
            sent.append(sum(counts[at : at + layout.counts]) if layout.counts else fixed)
        return sent

    def tensors_without_elements(self) -> int | None:
        """Return how many tensors have no index in this rank's latest message; None if the payload does not tell."""
        layouts = self.layout.layouts
        if self.compressor is None or all(layout.values >= n for layout, n in zip(layouts, self.numel, strict=True)):
            return 0
        if not self.compressor.sparse:
            return None
        missing = 0
        for i, payload in self.payloads.items():
            names = self.lane.segments[i].tensors
            used = int(payload.counts.sum()) if len(payload.counts) else len(payload.indices)
            if len(names) == 1:
                missing += used == 0 and self.numel[i] > 0
                continue
            ends = torch.tensor([self._slots[name][1] for name in names])
            hit = torch.bucketize(payload.indices[:used].cpu(), ends, right=True).unique()
            filled = sum(self._slots[name][1] > self._slots[name][0] for name in names)
            missing += filled - len(hit)
        return missing


class GatheredMessage(PackedMessage):
    """Payloads of a fixed size that do not add up: every rank gets all of them and decodes one after the other."""

    def __init__(self, lane: Lane, plan: Plan, *made_of: Any) -> None:
        super().__init__(lane, plan, *made_of)
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
        return [
            part.of(received) for part in (self.layout.values, self.layout.dense, self.layout.scales) if part.length
        ]

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
