"""The exchange queue: one thread that issues lanes strictly in plan order, on every rank alike.

A process group pairs operations of different ranks by the order in which they are issued, so order is everything: lanes
may become ready in any order, from any thread, and are still issued in the plan's.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from queue import SimpleQueue
from time import perf_counter
from typing import Any

import torch

from ssfx.runtime.lane import LaneExecutor


class ExchangeQueue:
    """Issues ready lanes head first from a thread of its own, so that multi-phase exchanges overlap with backward too.

    One step is `begin(lanes)`, `ready(i)` for every lane in any order, `drain()`. An error of the transport surfaces in
    `drain`. `spans` holds (issued, ended) of every lane of the latest step, by `perf_counter`.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._condition = threading.Condition()
        self._lanes: Sequence[LaneExecutor] = ()
        self._ready: list[Sequence[torch.cuda.Event] | None] = []
        self._next = 0
        self._error: BaseException | None = None
        self._closed = self._hold = False
        self.spans: list[list[float]] = []
        self._under_way: SimpleQueue[tuple[Any, list[float]] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=target, name=f"ssfx-{name}", daemon=True)
            for name, target in (("exchange", self._run), ("watch", self._watch))
        ]
        for thread in self._threads:
            thread.start()

    def begin(self, lanes: Sequence[LaneExecutor], hold: bool = False) -> None:
        """Start a step whose lanes are issued in the order given; with `hold`, not before `drain` is called."""
        with self._condition:
            self._lanes, self._next, self._error, self._hold = lanes, 0, None, hold
            self._ready = [None] * len(lanes)
            self.spans = [[0.0, 0.0] for _ in lanes]

    def ready(self, index: int, after: Sequence[torch.cuda.Event] = ()) -> None:
        """Tell that lane `index` may be issued once all earlier ones have been and the events `after` have passed."""
        with self._condition:
            self._ready[index] = after
            if index == self._next:
                self._condition.notify_all()

    def fail(self, error: BaseException) -> None:
        """Make `drain` raise `error`: something that a lane was waiting for has failed."""
        with self._condition:
            self._error = self._error or error
            self._condition.notify_all()

    def drain(self) -> None:
        """Return once every lane of the step has been issued; raises what issuing raised."""
        with self._condition:
            self._hold = False
            self._condition.notify_all()
            self._condition.wait_for(lambda: self._error is not None or self._next == len(self._lanes))
            if self._error is not None:
                raise self._error

    def close(self) -> None:
        """Stop the threads; nothing may be under way."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        self._under_way.put(None)
        for thread in self._threads:
            thread.join(timeout=5)

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._closed or self._issuable())
                if self._closed:
                    return
                index, lane, after = self._next, self._lanes[self._next], self._ready[self._next]
            try:
                self._issue(lane, after or (), self.spans[index])
            except BaseException as error:
                with self._condition:
                    self._error = error
                    self._condition.notify_all()
                continue
            with self._condition:
                self._next += 1
                if self._next == len(self._lanes):
                    self._condition.notify_all()

    def _issuable(self) -> bool:
        if self._hold or self._error is not None or self._next == len(self._lanes):
            return False
        return self._ready[self._next] is not None

    def _issue(self, lane: LaneExecutor, after: Sequence[torch.cuda.Event], span: list[float]) -> None:
        span[0] = perf_counter()
        if self._stream is None:
            lane.start()
        else:
            with torch.cuda.stream(self._stream):
                for event in after:
                    self._stream.wait_event(event)
                lane.start()
        assert lane.pending is not None
        if lane.pending.work is None:
            span[1] = perf_counter()
        elif self._stream is None:
            self._under_way.put((lane.pending.work, span))

    def _watch(self) -> None:
        # A thread of its own notes when exchanges end. A callback on the transport's thread would do it too, but may
        # still want the interpreter when the process is on its way out, which aborts it.
        while (item := self._under_way.get()) is not None:
            work, span = item
            with suppress(RuntimeError):  # the training thread waits for the same work and reports its error
                work.wait()
            span[1] = perf_counter()
