"""One message at run time, from arriving gradients to averages, and the queue that issues messages in plan order.

The kinds are in `message_kinds`, which chooses one. A plan calls a message a lane. None calls torch.distributed: they
hand their data to a Collective.
"""

from __future__ import annotations

import atexit
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import ClassVar
from weakref import WeakSet

import torch

from ssfx.collectives import Collective, collectives
from ssfx.collectives.comm import LOOK_EVERY, Comm, Pending
from ssfx.compressors.memories import Memory
from ssfx.core import accelerator
from ssfx.core.errors import SsfxError
from ssfx.core.intervals import union_s
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
    Integers are left out: they are finite, and torch would stack them as 16-bit floats, which hold no position above
    65,504.
    """
    floats = (part for part in parts if part.numel() and part.is_floating_point())
    ends = [end for part in floats for end in torch.aminmax(part)]
    return torch.isfinite(torch.stack(ends)).all() if ends else torch.tensor(True)


_queues: WeakSet[ExchangeQueue] = WeakSet()
_LAST_S = 5.0


class ExchangeQueue:
    """Messages are issued strictly in plan order, on every rank alike, in any order of readiness.

    A process group pairs operations of different ranks by the order in which they are issued. A message whose exchange
    is a single asynchronous operation is issued by the thread that makes it ready, which saves a change of threads; one
    whose exchange has several phases is worked through by a thread of the queue's own, so that it overlaps with
    backward too. One lock orders both.

    One step is `begin(messages)`, `ready(i)` for every message in any order and from any thread, then `drain()`.

    `spans` holds [issued, ended] of every message of the latest step, by `perf_counter`; an end is seen by the next
    call of `poll` or `ended`, and stays 0 on a GPU, where `comm_s` reads events instead.
    """

    def __init__(self, device: torch.device, *, serial: bool = False) -> None:
        self._serial = serial
        """True where the thread that makes a message ready works through its phases, too, on its own stream."""
        self._stream = None if serial else accelerator.stream(device)
        self._condition = threading.Condition()
        self._messages: Sequence[Message] = ()
        self._ready: list[Sequence[torch.Event] | None] = []
        self._next = self._step = 0
        self._hold = self._busy = self._closed = False
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._under_way: deque[int] = deque()
        self._events: list[tuple[torch.Event, torch.Event]] = []
        self.spans: list[list[float]] = []
        _queues.add(self)

    def begin(self, messages: Sequence[Message], hold: bool = False) -> None:
        """Start a step whose messages are issued in the order given; with `hold`, not before `drain` is called."""
        with self._condition:
            self._messages, self._next, self._error, self._hold = messages, 0, None, hold
            self._step += 1
            self._ready = [None] * len(messages)
            self._under_way.clear()
            self._events = []
            self.spans = [[0.0, 0.0] for _ in messages]

    def ready(self, index: int, after: Sequence[torch.Event] = ()) -> None:
        """Tell that message `index` may be issued once all earlier ones were and the events `after` have passed."""
        with self._condition:
            self._ready[index] = after
            self._pump()

    def fail(self, error: BaseException) -> None:
        """Make `drain` raise `error`: something that a message was waiting for has failed."""
        with self._condition:
            self._error = self._error or error
            self._condition.notify_all()

    def drain(self) -> None:
        """Return once every message of the step has been issued; raises what issuing or preparing one raised."""
        with self._condition:
            self._hold = False
            self._pump()
            while not self._condition.wait_for(self._all_issued, LOOK_EVERY.total_seconds()):
                self._look()
            if self._error is not None:
                if not isinstance(self._error, SsfxError):
                    self._look()
                raise self._error
        if self._stream is not None:  # what a message computed itself is on that stream and has no work to wait for
            accelerator.current_stream(self._stream).wait_stream(self._stream)

    def _all_issued(self) -> bool:
        return self._error is not None or self._next == len(self._messages)

    def _look(self) -> None:
        self._messages[0].comm.look()

    def poll(self) -> None:
        """Note which exchanges have ended by now."""
        while self._under_way:
            pending = self._messages[self._under_way[0]].pending
            if pending is None or not pending.done():
                return
            self.ended(self._under_way[0])

    def ended(self, index: int) -> None:
        """Note that the exchange of message `index` has ended, unless that is known already."""
        if self._under_way and self._under_way[0] == index:
            self._under_way.popleft()
        if not self.spans[index][1] and self._stream is None:
            self.spans[index][1] = perf_counter()

    def comm_s(self) -> float:
        """Return the seconds during which at least one exchange of the latest step was under way."""
        if self._stream is None:
            return union_s(self.spans)
        return sum(accelerator.seconds(start, end) for start, end in self._events)

    @property
    def idle(self) -> bool:
        """True when every exchange that was begun has ended well."""
        self.poll()
        return self._error is None and self._next == len(self._messages) and not self._under_way

    def stop(self) -> None:
        """Let the thread end, if there is one, without waiting for it."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()

    def close(self) -> None:
        """Stop the thread, if there is one; nothing may be under way."""
        self.stop()
        if self._thread is not None:
            self._thread.join(timeout=_LAST_S)

    def _pump(self) -> None:
        """Issue what can be issued; the lock is held."""
        while not self._busy and self._issuable():
            if self._messages[self._next].blocking and not self._serial:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="ssfx-exchange", daemon=True)
                    self._thread.start()
                self._condition.notify_all()
                return
            try:
                self._issue(self._next)
            except BaseException as error:
                self._error = error
            else:
                self._next += 1
        if self._error is not None or self._next == len(self._messages):
            self._condition.notify_all()

    def _issuable(self) -> bool:
        if self._hold or self._error is not None or self._next == len(self._messages):
            return False
        return self._ready[self._next] is not None

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(
                    lambda: self._closed or (self._issuable() and self._messages[self._next].blocking)
                )
                if self._closed:
                    return
                self._busy, step = True, self._step
            error: BaseException | None = None
            try:
                self._issue(self._next)
            except BaseException as raised:
                error = raised
            with self._condition:
                self._busy = False
                if step == self._step:  # else the step was given up before and another one has begun
                    self._error = self._error or error
                    self._next += self._error is None
                self._pump()

    def _issue(self, index: int) -> None:
        message = self._messages[index]
        self.spans[index][0] = perf_counter()
        if self._stream is None:
            for event in self._ready[index] or ():
                event.wait()
            message.start()
            self._under_way.append(index)
            return
        with accelerator.working_on(self._stream):
            for event in self._ready[index] or ():
                self._stream.wait_event(event)
            start = accelerator.event(self._stream.device, timed=True)
            message.start()
            if message.pending is not None and message.pending.work is not None:
                message.pending.work.wait()  # the stream waits, not this thread
            self._events.append((start, accelerator.event(self._stream.device, timed=True)))


@atexit.register
def _let_threads_fail() -> None:
    """Let a thread whose peer has gone come back with the transport's error while there is an interpreter to come to.

    One that comes back later ends the process with a signal.
    """
    for queue in list(_queues):
        if queue._busy and queue._thread is not None:
            queue.close()
