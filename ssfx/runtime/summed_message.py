"""Messages that are summed: of gradients as they are, in place, and of payloads that add up, decoded once."""

from collections.abc import Collection, Mapping

import torch

from ssfx.collectives.comm import Comm
from ssfx.compressors.memories import Memory
from ssfx.planning.plan import Lane, Plan
from ssfx.runtime.message import Carried, Message, Room, StepKey
from ssfx.runtime.packed_message import PackedMessage
from ssfx.runtime.store import Store


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
        if grad is None:
            view.zero_()
        else:
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
