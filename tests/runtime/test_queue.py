"""The exchange queue: plan order whatever the order of readiness, hold, errors, end."""

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ssfx.collectives.comm import Pending
from ssfx.collectives.torch_comm import TorchComm
from ssfx.runtime.message import ExchangeQueue


class Message:
    """A message that notes when it was issued; its exchange ends at once. A blocking one is issued by a thread."""

    def __init__(
        self, number: int, issued: list[int], start: Callable[[], None] = lambda: None, blocking: bool = False
    ) -> None:
        self.number, self._issued, self._start, self.blocking = number, issued, start, blocking
        self.pending: Pending | None = None
        self.comm = TorchComm()

    def start(self) -> None:
        self._start()
        self._issued.append(self.number)
        self.pending = Pending(None, torch.zeros(0))


@contextmanager
def running() -> Iterator[ExchangeQueue]:
    queue = ExchangeQueue(torch.device("cpu"))
    try:
        yield queue
    finally:
        queue.close()


def messages(count: int, issued: list[int], blocking: Collection[int] = ()) -> Any:
    return [Message(i, issued, blocking=i in blocking) for i in range(count)]


@given(
    st.lists(st.permutations(range(6)), min_size=1, max_size=3),
    st.sets(st.integers(0, 5)),
    st.booleans(),
    st.booleans(),
)
def test_lanes_are_issued_in_plan_order_whatever_gets_ready_first(
    orders: list[list[int]], blocking: set[int], hold: bool, from_threads: bool
) -> None:
    with running() as queue:
        for order in orders:
            issued: list[int] = []
            queue.begin(messages(6, issued, blocking), hold=hold)
            if from_threads:
                threads = [threading.Thread(target=queue.ready, args=(i,)) for i in order]
                for thread in threads:
                    thread.start()
                queue.drain()
                for thread in threads:
                    thread.join()
            else:
                for i in order:
                    queue.ready(i)
                queue.drain()
            assert issued == list(range(6))
            for i in range(6):
                queue.ended(i)
            starts = [start for start, _ in queue.spans]
            assert starts == sorted(starts)
            assert all(0 < start <= end for start, end in queue.spans)


@given(st.permutations(range(5)), st.integers(1, 4), st.sets(st.integers(0, 4)))
def test_nothing_is_issued_before_all_earlier_messages(order: list[int], missing: int, blocking: set[int]) -> None:
    with running() as queue:
        issued: list[int] = []
        queue.begin(messages(5, issued, blocking))
        for i in order:
            if i != missing:
                queue.ready(i)
        assert issued == list(range(len(issued)))
        assert len(issued) <= missing
        queue.ready(missing)
        queue.drain()
        assert issued == list(range(5))


@pytest.mark.parametrize("blocking", [(), (0, 1)])
def test_with_hold_nothing_is_issued_before_drain(blocking: tuple[int, ...]) -> None:
    with running() as queue:
        issued: list[int] = []
        queue.begin(messages(2, issued, blocking), hold=True)
        queue.ready(0)
        queue.ready(1)
        assert issued == []
        queue.drain()
        assert issued == [0, 1]


def test_a_step_without_lanes_drains_at_once() -> None:
    with running() as queue:
        queue.begin([])
        queue.drain()
        assert queue.spans == []


@pytest.mark.parametrize("blocking", [False, True])
def test_an_error_of_issuing_surfaces_in_drain_and_stops_later_messages(blocking: bool) -> None:
    def broken() -> None:
        raise RuntimeError("connection reset by peer")

    with running() as queue:
        issued: list[int] = []
        queue.begin([Message(0, issued), Message(1, issued, broken, blocking), Message(2, issued)])  # type: ignore[list-item]
        for i in (2, 1, 0):
            queue.ready(i)
        with pytest.raises(RuntimeError, match="connection reset"):
            queue.drain()
        assert issued == [0]


def test_a_failure_elsewhere_surfaces_in_drain() -> None:
    with running() as queue:
        issued: list[int] = []
        queue.begin(messages(2, issued))
        queue.fail(MemoryError("no room on the host"))
        queue.fail(ValueError("a later one"))
        with pytest.raises(MemoryError, match="no room"):
            queue.drain()
        assert issued == []


def test_close_is_idempotent_and_ends_the_threads() -> None:
    before = set(threading.enumerate())
    queue = ExchangeQueue(torch.device("cpu"))
    queue.begin(messages(1, [], blocking=[0]))
    queue.ready(0)
    queue.drain()
    (own,) = set(threading.enumerate()) - before
    queue.close()
    queue.close()
    assert not own.is_alive()
