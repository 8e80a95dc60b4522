"""The exchange queue: messages are issued strictly in plan order, on every rank alike, in any order of readiness.

A process group pairs operations of different ranks by the order in which they are issued, so order is everything. A
message whose exchange is a single asynchronous operation is issued by the thread that makes it ready, which saves a
change of threads; one whose exchange has several phases is worked through by a thread of the queue's own, so that it
overlaps with backward too. One lock orders both.
"""

from __future__ import annotations

import atexit
import threading
from collections import deque
from collections.abc import Sequence
from time import perf_counter
from weakref import WeakSet

import torch

from ssfx.collectives.comm import LOOK_EVERY
from ssfx.core import accelerator
from ssfx.core.errors import SsfxError
from ssfx.core.intervals import union_s
from ssfx.runtime.message import Message

_all: WeakSet[ExchangeQueue] = WeakSet()
_LAST_S = 5.0


class ExchangeQueue:
    """One step is `begin(messages)`, `ready(i)` for every message in any order and from any thread, then `drain()`.

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
        _all.add(self)

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
    for queue in list(_all):
        if queue._busy and queue._thread is not None:
            queue.close()
