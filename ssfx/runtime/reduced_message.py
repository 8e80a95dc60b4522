"""The message of a reducer: one vector in, the sum of what survived out, the rest left in the memory."""

from collections.abc import Collection, Mapping

import torch

from ssfx.collectives import Reduced, Reducer, Reduction
from ssfx.collectives.comm import Comm, Pending
from ssfx.compressors import Compressor
from ssfx.compressors.batch import Batch
from ssfx.compressors.kernels.gradients import accumulate
from ssfx.compressors.kernels.narrow import cut_values
from ssfx.compressors.memories import Memory
from ssfx.planning.plan import Lane, Plan
from ssfx.runtime.message import Room
from ssfx.runtime.packed_message import PackedMessage
from ssfx.runtime.store import Store
from ssfx.simulator.pricing.message_sizes import lane_load


class ReducedMessage(PackedMessage):
    """Compressed segments whose selected elements are summed by a reducer, in the queue's own thread."""

    def __init__(
        self, lane: Lane, plan: Plan, comm: Comm, device: torch.device, store: Store, memory: Memory,
        reducer: Reducer, first_step: int = 0,
    ) -> None:  # fmt: skip
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

    def __init__(
        self, lane: Lane, plan: Plan, comm: Comm, device: torch.device, store: Store, memory: Memory,
        reducer: Reducer, first_step: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(lane, plan, comm, device, store, memory, reducer, first_step)
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
    accumulate(batch)
