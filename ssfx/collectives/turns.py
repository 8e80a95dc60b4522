"""Turns: threads of one process of which one runs at a time, each as if the process were its own.

A rank hands its turn over only when it waits for others, so nothing is computed twice at a time, and every run is the
same. What a process has once and ranks have each, the state of the random generators, goes with the turn.
"""

from __future__ import annotations

import ctypes
import random
import threading
from collections.abc import Callable
from typing import Any

from ssfx.core import accelerator
from ssfx.core.errors import RunError
from ssfx.core.lazy import numpy, torch


class _Stopped(BaseException):
    """Ends a rank because another one has failed; no `except Exception` of a script holds it up."""


_STOP_TRIALS, _STOP_S = 5, 2.0


def _send(thread: int, exception: type[BaseException] | None) -> None:
    """Raise `exception` in a thread, once it is in Python; None takes back what has not come."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), exception and ctypes.py_object(exception))


class Turns:
    """`run(work)` calls work(rank) for every rank, in threads that take turns, and returns what they return.

    `device`: the one whose random generator goes with the turn, besides those of torch on the CPU, NumPy and Python.
    """

    def __init__(self, size: int, device: torch.device) -> None:
        self.size = size
        self._device = device
        self._batons = [threading.Lock() for _ in range(size)]
        self._can_go_on: list[Callable[[], bool] | None] = [None] * size
        self._ended = [False] * size
        self._random: list[Any] = [None] * size
        self._over = threading.Event()
        self._works: threading.Thread | None = None
        """The thread whose rank works; `_stopping` is held while that changes, and while an exception is sent to it."""
        self._stopping = threading.Lock()
        self._changes = self._idle = 0
        """Events that a rank may wait for, and turns since the last one."""
        self.failure: tuple[int, BaseException] | None = None
        """The rank that raised first, and what."""

    def run(self, work: Callable[[int], Any]) -> list[Any]:
        """Return the results by rank. Every thread has ended then, also where `failure` says that a rank raised.

        All ranks begin with the random state of the caller, who has it again in the end.
        """
        accelerator.load_linear_algebra(self._device)
        before = self._random_state()
        self._random = [before] * self.size
        results: list[Any] = [None] * self.size
        for baton in self._batons:
            baton.acquire()
        threads_used = torch.get_num_threads()

        def body(rank: int) -> None:
            self._batons[rank].acquire()
            try:
                if self.failure is None:
                    torch.set_num_threads(threads_used)
                    if accelerator.queued(self._device):
                        accelerator.use(self._device.type, self._device.index or 0)  # which is a thread's own choice
                    # Hooks of all ranks on one GPU would share one thread of autograd's, in which none may wait.
                    with torch.autograd.set_multithreading_enabled(False):
                        self._now(threading.current_thread())
                        try:
                            results[rank] = work(rank)
                        finally:
                            self._now(None)
            except _Stopped:
                pass
            except BaseException as error:
                self.failure = self.failure or (rank, error)
            self._ended[rank] = True
            self.changed()
            following = self._following(rank)
            if following is None:
                self._over.set()
            else:
                self._give(rank, following)

        threads = [
            threading.Thread(target=body, args=(rank,), name=f"ssfx-rank-{rank}", daemon=True)
            for rank in range(self.size)
        ]
        for thread in threads:
            thread.start()
        self._batons[0].release()
        try:
            self._over.wait()
        except BaseException as error:  # Ctrl-C comes to this thread
            self.failure = self.failure or (-1, error)
            self._stop()
        for thread in threads if self._over.is_set() else ():
            thread.join()
        torch.set_num_threads(threads_used)
        self._set_random_state(before)
        return results

    def _now(self, works: threading.Thread | None) -> None:
        """Note which thread works from now on; an exception that was sent to this one and has not come is dropped."""
        with self._stopping:
            self._works = works
            if works is None:
                _send(threading.get_ident(), None)

    def _stop(self) -> None:
        """End every rank, also one that computes and waits for no other; leave one that sleeps for longer than that."""
        for _ in range(_STOP_TRIALS):
            with self._stopping:
                if self._works is not None and self._works.ident is not None:
                    _send(self._works.ident, _Stopped)
            if self._over.wait(_STOP_S):
                return

    def changed(self) -> None:
        """Tell that something has happened that a rank may have waited for."""
        self._changes += 1
        self._idle = 0

    def ended(self) -> list[int]:
        """Return the ranks that have ended."""
        return [rank for rank, ended in enumerate(self._ended) if ended]

    def wait(self, rank: int, done: Callable[[], bool], look: Callable[[], None], why: Callable[[], str]) -> None:
        """Return once `done()` is true; the other ranks run until then.

        `look` is called where none of them can go on, and may raise; `why` says what this rank waits for, in the
        RunError that ends a wait that cannot end otherwise.
        """
        while not done():
            self._hand_over(rank, done)
            if not done():
                look()
                self._check_not_stuck(why)

    def pause(self, rank: int, why: Callable[[], str]) -> None:
        """Let every other rank that can go on do so; RunError, with `why`, where none ever will."""
        before = self._changes
        self._hand_over(rank, lambda: self._changes != before)
        self._check_not_stuck(why)

    def _check_not_stuck(self, why: Callable[[], str]) -> None:
        if self._idle > 2 * self.size:  # every rank has had a look since anything happened
            raise RunError(why())

    def _hand_over(self, rank: int, done: Callable[[], bool]) -> None:
        self._can_go_on[rank] = done
        self._idle += 1
        following = self._following(rank)
        assert following is not None
        if following != rank:
            here = threading.current_thread()
            self._now(None)
            self._give(rank, following)
            self._batons[rank].acquire()
            self._now(here)
        self._can_go_on[rank] = None
        if self.failure is not None:
            raise _Stopped

    def _following(self, rank: int) -> int | None:
        """Return the next rank that can go on; if none can, the next one that has not ended, None if all have."""
        others = [other % self.size for other in range(rank + 1, rank + 1 + self.size)]
        there = [other for other in others if not self._ended[other]]
        for other in there:
            can_go_on = self._can_go_on[other]
            if self.failure is not None or can_go_on is None or can_go_on():
                return other
        return there[0] if there else None

    def _give(self, rank: int, following: int) -> None:
        self._random[rank] = self._random_state()
        self._set_random_state(self._random[following])
        self._batons[following].release()

    def _random_state(self) -> tuple[Any, ...]:
        of_device = accelerator.random_state(self._device) if accelerator.queued(self._device) else None
        return torch.get_rng_state(), random.getstate(), numpy.random.get_state(), of_device

    def _set_random_state(self, state: tuple[Any, ...]) -> None:
        of_torch, of_python, of_numpy, of_device = state
        torch.set_rng_state(of_torch)
        random.setstate(of_python)
        numpy.random.set_state(of_numpy)
        if of_device is not None:
            accelerator.set_random_state(of_device, self._device)
