"""The exchange queue: one thread that issues lanes strictly in plan order, on every rank alike.

A process group pairs operations of different ranks by the order in which they are issued, so order is everything: lanes
may become ready in any order, from any thread, and are still issued in the plan's.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from time import perf_counter

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
        self._thread = threading.Thread(target=self._run, name="ssfx-exchange", daemon=True)
        self._thread.start()

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
        """Stop the thread; nothing may be under way."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        self._thread.join(timeout=5)

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
            lane.pending.work.get_future().then(lambda _: span.__setitem__(1, perf_counter()))
