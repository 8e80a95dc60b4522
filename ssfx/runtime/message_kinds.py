"""The kinds of message, and which of them carries a lane of the plan: dense, summed, gathered or reduced.

Summed: of gradients as they are, in place, or of payloads that add up, decoded once. Gathered: payloads do not add up,
so every rank gets all of them and decodes one after the other. Reduced: one vector in, the sum of what survived out,
the rest left in the memory.
"""

from collections.abc import Collection, Mapping
from typing import Any

import torch

from ssfx.collectives import Reduced, Reducer, Reduction, collectives
from ssfx.collectives.comm import Comm, Pending
from ssfx.compressors import Compressor, build
from ssfx.compressors.batch import Batch
from ssfx.compressors.kernels.narrow import cut_values
from ssfx.compressors.memories import Memory, memories
from ssfx.planning.plan import Lane, Plan
from ssfx.runtime.message import Carried, Message, Room, StepKey
from ssfx.runtime.packed_message import GatheredMessage, PackedMessage, VariableGatheredMessage
from ssfx.runtime.store import Store
from ssfx.simulator.pricing.message_sizes import lane_load


class DenseMessage(Message):
    """An uncompressed all-reduce: gradients are averaged in place in one flat buffer of their own dtype."""

    in_room = False

    def __init__(
        self, lane: Lane, plan: Plan, comm: Comm, device: torch.device, store: Store, memory: Memory | None
    ) -> None:
        super().__init__(lane, plan, comm)
        specs = [plan.by_name[name] for name in lane.tensors]
        self.flat = torch.zeros(sum(s.numel for s in specs), dtype=getattr(torch, specs[0].dtype), device=device)
        self.views: dict[str, torch.Tensor] = {}
        offset = 0
        for spec in specs:
            self.views[spec.name] = self.flat[offset : offset + spec.numel].view(spec.shape)
            offset += spec.numel
        self.nbytes = self.flat.numel() * self.flat.element_size()
        self._share = 1.0 / comm.world_size
        self._carried = Carried(self.views, store, memory, device)

    def begin(self, key: StepKey, going_on: Collection[str] = ()) -> None:
        """Reset for a new step."""
        super().begin(key, going_on)
        self._carried.begin(going_on)

    def add(self, name: str, grad: torch.Tensor | None) -> None:
        """Write grad / world size, plus residuals of an earlier plan, into the flat buffer."""
        view = self.views[name]
        if grad is None or grad.shape != view.shape:  # of a weight that was replaced: every rank will undo this
            view.zero_()
        else:
            assert grad.shape == view.shape, name  # torch would make room for it elsewhere, and send the old values
            torch.mul(grad, self._share, out=view)
        carried = None if name in self.resting else self._carried.of(name)
        if carried is not None:
            view.add_(carried.view(view.shape), alpha=self._share)

    def compress(self, segment: int) -> None:
        """Nothing to do: values travel as they are."""

    def start(self) -> None:
        """Issue the in-place sum."""
        self.pending = self.collective.start(self.flat, self.comm)

    def finish(self) -> list[torch.Tensor]:
        """Wait for the sum."""
        assert self.pending is not None
        self.pending.wait()
        return [self.flat]

    def commit(self, names: Collection[str]) -> None:
        """Forget an earlier plan's residuals of `names`: they have been sent."""
        self._carried.commit(names)

    def decode(self, grads: Mapping[str, torch.Tensor], room: Room) -> Collection[str]:
        """Nothing to do: the sum of shares is the average."""
        return ()

    def result(self, name: str) -> torch.Tensor:
        """Return the averaged gradient."""
        return self.views[name]


class SummedMessage(PackedMessage):
    """Segments of one additive compressor, without dense ones."""

    def __init__(self, lane: Lane, plan: Plan, *made_of: Any) -> None:
        super().__init__(lane, plan, *made_of)
        assert self.compressor is not None
        self.codec = self.compressor
        alone = len(self.packed) == 1
        self._used = self.codec.cycle(self._segment_shapes(plan, self.packed[0])) if alone else ()
        """How many values are sent at step 0, 1, ... and over again; empty: all of them in every step."""

    def start(self) -> None:
        """Issue the sum of the value section, after both rounds of a compressor that has two."""
        self.agree()
        values = self.layout.values.of(self.data)
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


class ReducedMessage(PackedMessage):
    """Compressed segments whose selected elements are summed by a reducer, in the queue's own thread."""

    def __init__(
        self,
        lane: Lane,
        plan: Plan,
        comm: Comm,
        device: torch.device,
        store: Store,
        memory: Memory,
        reducer: Reducer,
        first_step: int = 0,
    ) -> None:
        initial = reducer.initial_state(sum(map(plan.numel, lane.segments)), comm.world_size)
        super().__init__(lane, plan, comm, device, store, memory, memory, first_step, initial)
        self.reducer = reducer
        self.kept = lane_load(plan, lane).kept
        self._ends = torch.tensor([self._slots[name][1] for name in lane.tensors])
        self._filled = sum(plan.by_name[name].numel > 0 for name in lane.tensors)
        self._reduced: Reduced | None = None

    def start(self) -> None:
        """Reduce; returns when the sum is there."""
        vector = self.state.new[self.memory.buffers[0]][: self.packed_total]
        work = Reduction(vector, self.kept, self.state.step, self.key.seed, self.state.collective_new)
        self._fill(work)
        before = cut_values()
        self._reduced = self.reducer.reduce(work, self.comm)
        self.cut_values += cut_values() - before
        self.pending = Pending(None, self._reduced.values)

    def _fill(self, work: Reduction) -> None:
        """Put in what the compressor has selected, and whether any of it is not finite."""
        work.indices, work.values = self._selected()
        work.bad = not bool(torch.isfinite(work.values).all())
        if not self.memory.stateful:
            work.vector[work.indices] = 0  # a memory that keeps nothing has not taken out what is sent

    def _selected(self) -> tuple[torch.Tensor, torch.Tensor]:
        indices, values = [], []
        for i in self.packed:
            payload = self.payloads[i]
            used = int(payload.counts.sum()) if len(payload.counts) else len(payload.indices)
            indices.append(payload.indices[:used].long())
            values.append(payload.values[:used].float())
        return torch.cat(indices), torch.cat(values)

    def finish(self) -> list[torch.Tensor]:
        """Return the numbers of the sum."""
        assert self._reduced is not None
        return [self._reduced.values]

    def decode(self, grads: Mapping[str, torch.Tensor], room: Room) -> Collection[str]:
        """Write the average over ranks into `room`."""
        assert self._reduced is not None
        self.out = room.of(self.total)
        values, indices = self._reduced.values / self.comm.world_size, self._reduced.indices
        if indices is None:
            self.out[: self.packed_total].copy_(values)
        else:
            self.out.zero_()
            self.out[indices] = values
        return ()

    def sent_elements(self) -> int:
        """Return how many elements this rank put in."""
        return self._reduced.sent if self._reduced else 0

    def tensors_without_elements(self) -> int:
        """Return how many tensors have no element in the sum: the reducer may have dropped what ranks selected."""
        if self._reduced is None:
            return 0
        indices = self._reduced.indices
        if indices is None:  # a sum that travelled dense may still be zero where no rank selected anything
            indices = self._reduced.values.nonzero().view(-1)
        hit = torch.bucketize(indices.cpu(), self._ends, right=True).unique()
        return self._filled - len(hit)


class SelectingReducedMessage(ReducedMessage):
    """As its base, where the reducer selects by itself: gradients are accumulated, and nothing is packed.

    The compressor named in the plan only says by which rule.
    """

    def __init__(self, *made_of: Any) -> None:
        super().__init__(*made_of)
        self._call = _accumulate

    def _fill(self, work: Reduction) -> None:
        """Note whether anything in the memory is not finite."""
        work.bad = not bool(torch.isfinite(work.vector.sum()) or torch.isfinite(work.vector).all())

    def density_ratios(self) -> list[float]:
        """Return what this rank put in over what it was to put in, for the message as a whole."""
        return [self.sent_elements() / self.kept] if self.kept < self.total else []


class QuantizedReducedMessage(SelectingReducedMessage):
    """As its base, where the reducer sends every element, quantised by the compressor of the message."""

    def _fill(self, work: Reduction) -> None:
        """Say how to quantise; what is not finite shows in the scales."""
        work.compressor, work.keeps = self.compressor, self.memory.stateful
        work.lane = self.key.tensor_ids[self.lane.segments[0].tensors[0]]

    def tensors_without_elements(self) -> int:
        """Return 0: every tensor is sent."""
        return 0


def _accumulate(_: Compressor, batch: Batch) -> None:
    batch.accumulate()


def make_message(
    lane: Lane, plan: Plan, comm: Comm, device: torch.device, store: Store, memory: Memory | None, step: int = 0
) -> Message:
    """Return the message of a lane, by what its collective does with it; dense if nothing is compressed.

    A gather carries dense tensors as part of its messages, also where nothing else is in them.
    """
    collective = collectives.build(lane.collective)
    if collective.additive_only and all(segment.dense for segment in lane.segments):
        return DenseMessage(lane, plan, comm, device, store, memory)
    assert memory is not None
    if isinstance(collective, Reducer):
        selecting = QuantizedReducedMessage if collective.quantizes else SelectingReducedMessage
        reduce = selecting if collective.selects else ReducedMessage
        return reduce(lane, plan, comm, device, store, memory, collective, step)
    kind = (
        SummedMessage
        if collective.additive_only
        else VariableGatheredMessage
        if collective.variable
        else GatheredMessage
    )
    return kind(lane, plan, comm, device, store, message_memory(lane, memory), memory, step)


def message_memory(lane: Lane, memory: Memory) -> Memory:
    """Return the memory of a message: none where its compressor leaves nothing out or its error must not be fed back.

    A plan of several compressors has messages of both kinds; a memory without feedback suits all of them.
    """
    specs = {segment.compressor for segment in lane.segments if segment.compressor is not None}
    if memory.feedback and any(build(spec).lossless or not build(spec).error_feedback for spec in specs):
        return memories.build("none")
    return memory
