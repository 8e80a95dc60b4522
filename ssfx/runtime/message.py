"""One message at run time: its flat buffers, from arriving gradients to averages.

The kinds are in `message_kinds`, which chooses one. A plan calls a message a lane. None calls torch.distributed: they
hand their data to a Collective.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch

from ssfx.collectives import Collective, collectives
from ssfx.collectives.comm import Comm, Pending
from ssfx.compressors.memories import Memory
from ssfx.planning.plan import Lane, Plan
from ssfx.runtime.store import Store


@dataclass(frozen=True, slots=True)
class StepKey:
    """What compression may depend on besides the data; `tensor_ids` maps names to sorted positions."""

    seed: int
    tensor_ids: dict[str, int]


class Room:
    """A float32 vector that messages decode into, one after the other: as large as the largest of them needs."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._vector = torch.empty(0, dtype=torch.float32, device=device)

    def of(self, numel: int) -> torch.Tensor:
        """Return `numel` elements of unknown content; those of an earlier call are overwritten through them."""
        if self._vector.numel() < numel:
            self._vector = torch.empty(0, dtype=torch.float32, device=self._device)  # the smaller goes first
            self._vector = torch.empty(numel, dtype=torch.float32, device=self._device)
        return self._vector[:numel]


class Carried:
    """Residuals from an earlier plan, for tensors that are now sent dense; added once (D-20)."""

    def __init__(self, names: Iterable[str], store: Store, memory: Memory | None, device: torch.device) -> None:
        self._store, self._kept = store, dict[str, torch.Tensor]()
        self._sent: set[str] = set()
        if memory is None or not (memory.stateful and memory.feedback):
            return
        self._buffer = memory.buffers[0]
        for name in names:
            kept = store.get(name, self._buffer)
            if kept is not None:
                self._kept[name] = kept.to(device)  # it may have lived on the host

    def begin(self, going_on: Collection[str]) -> None:
        """Start a step; of tensors in `going_on` an exchange that still counts has sent it."""
        self._sent = {name for name in self._kept if name in going_on}

    def of(self, name: str) -> torch.Tensor | None:
        """Return the residual that is added to a tensor in this step; None if there is none."""
        return None if name in self._sent else self._kept.get(name)

    def commit(self, names: Collection[str]) -> None:
        """Forget what has been sent with the tensors `names`."""
        for name in [name for name in self._kept if name in names]:
            self._store.drop(name, self._buffer)
            del self._kept[name]


class Message(ABC):
    """What all kinds of messages share: which tensors are still missing, and the exchange under way."""

    in_room: ClassVar[bool] = True
    """`result` is valid only until another message decodes."""

    def __init__(self, lane: Lane, plan: Plan, comm: Comm) -> None:
        self.lane = lane
        self.comm = comm
        self.collective: Collective = collectives.build(lane.collective)
        self.blocking = self.collective.blocking
        self.numel = [plan.numel(segment) for segment in lane.segments]
        self.missing: list[int] = []
        self.pending: Pending | None = None
        self.nbytes = 0
        self.cut_values = 0
        """Values of this rank so far that were beyond what 16 bits hold."""
        self.resting: set[str] = set()
        """Frozen tensors of this step: they count as zeros, and their residuals are neither sent nor changed."""

    def begin(self, key: StepKey, going_on: Collection[str] = ()) -> None:
        """Reset for a new step: all tensors are missing; for `going_on` see `MessageState.begin`."""
        self.missing = [len(segment.tensors) for segment in self.lane.segments]
        self.pending = None
        self.resting.clear()
        self.key = key

    def arrived(self, segment: int) -> bool:
        """Note that one more tensor of a segment is in; return whether the segment is now complete."""
        self.missing[segment] -= 1
        return self.missing[segment] == 0

    @abstractmethod
    def add(self, name: str, grad: torch.Tensor | None) -> None:
        """Take one tensor's local gradient into the flat buffer; None counts as zeros, as does one that rests."""

    @abstractmethod
    def compress(self, segment: int) -> None:
        """Turn a complete segment into its part of the message."""

    def offload(
        self, segment: int, grads: dict[str, torch.Tensor | None], stream: torch.Stream | None
    ) -> Callable[[], list[torch.Event]]:
        """Return the host thread's work for a segment: take its gradients and compress them there.

        The work returns the events after which the payload is in the message (none on CPU).
        """

        def work() -> list[torch.Event]:
            for name, grad in grads.items():
                self.add(name, grad)
            self.compress(segment)
            return []

        return work

    @abstractmethod
    def start(self) -> None:
        """Issue the exchange; called by the exchange queue in plan order."""

    @abstractmethod
    def finish(self) -> list[torch.Tensor]:
        """Wait for the exchange; return everything received that must be finite for the step to count."""

    @abstractmethod
    def commit(self, names: Collection[str]) -> None:
        """Make what this step left of the tensors `names` the committed memory; others' names are ignored."""

    def restore(self, name: str, where: torch.Tensor) -> None:
        """The uncommitted memory, if there is one, of elements of a tensor (flat, bool) is as before this step."""
        return None

    @abstractmethod
    def decode(self, grads: Mapping[str, torch.Tensor], room: Room) -> Collection[str]:
        """Turn what was received into averaged gradients, in `room` where the message itself cannot hold them.

        Return the tensors of `grads` that hold their average already; `result` has the others', until `room` is used
        again.
        """

    @abstractmethod
    def result(self, name: str) -> torch.Tensor:
        """Return the averaged gradient of one tensor that `decode` has not written, in its shape; call after it."""

    def kept_squares(self, buffer: str) -> float:
        """Return the squared norm of what this step left in a memory's buffer, committed or not."""
        return 0.0

    def sent_elements(self) -> int:
        """Return how many elements this rank sent in the latest step."""
        return sum(self.numel)

    def density_ratios(self) -> list[float]:
        """Return achieved over target density of each segment that is to send a fraction, but at least one element.

        Of a smaller segment no codec can send what was asked for.
        """
        return []

    def tensors_without_elements(self) -> int | None:
        """Return how many tensors of the message had nothing sent in the latest step; None if it cannot be known."""
        return 0


def all_finite(parts: Iterable[torch.Tensor]) -> torch.Tensor:
    """Return whether every number is finite, a bool on their device.

    NaN is both extremes of what holds it, and a CPU finds extremes in 1/25 of the time of a sum of 16-bit numbers.
    """
    ends = [end for part in parts if part.numel() for end in torch.aminmax(part)]
    return torch.isfinite(torch.stack(ends)).all() if ends else torch.tensor(True)
