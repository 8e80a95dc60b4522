"""The lane without compression: one flat buffer of the gradients' own dtype, summed over ranks in place."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch

from ssfx.collectives.comm import Comm
from ssfx.compressors.memories import Memory
from ssfx.planning.plan import Lane, Plan
from ssfx.runtime.lane import Carried, LaneExecutor, Room, StepKey
from ssfx.runtime.store import Store


class DenseLane(LaneExecutor):
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
        """Write grad / world size, plus what an earlier plan kept back, into the flat buffer."""
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
        """Forget what an earlier plan kept back of `names`: it has been sent."""
        self._carried.commit(names)

    def decode(self, grads: Mapping[str, torch.Tensor], room: Room) -> Collection[str]:
        """Nothing to do: the sum of shares is the average."""
        return ()

    def result(self, name: str) -> torch.Tensor:
        """Return the averaged gradient."""
        return self.views[name]
