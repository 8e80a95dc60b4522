"""Signals that end a launcher: Ctrl-C, SIGTERM and SIGHUP now, SIGUSR1, a warning, at a checkpoint after the step."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ssfx.core.errors import RequeueError

NOW = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
WARNING = signal.SIGUSR1


class Warned:
    """Whether WARNING has come."""

    def __init__(self) -> None:
        self.yes = False

    def check(self, before: str) -> None:
        """Raise RequeueError, saying before what, if the warning has come."""
        if self.yes:
            raise RequeueError(f"stopped by {WARNING.name} before {before}; the same command continues")

    def come(self, *_: object) -> None:
        """Note that the warning has come."""
        self.yes = True


@contextmanager
def signals() -> Iterator[Warned]:
    """The first of NOW ends what is inside; others that follow do not keep ranks from being ended, and files put away.

    Ctrl-C is KeyboardInterrupt, as ever; SIGTERM and SIGHUP are SystemExit(128 + number), and a line says so at the
    end. SIGUSR1 is noted. Signals reach the main thread only: in another one nothing changes. What is ignored, as
    SIGHUP is under nohup, stays ignored.
    """
    warned = Warned()
    if threading.current_thread() is not threading.main_thread():
        yield warned
        return
    ended_by: list[int] = []

    def leave(number: int, _: object) -> None:
        if not ended_by:  # a second one must not keep ranks from being ended
            ended_by.append(number)
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    before = {number: signal.getsignal(number) for number in (*NOW, WARNING)}
    for number in NOW:
        if before[number] != signal.SIG_IGN:
            signal.signal(number, leave)
    signal.signal(WARNING, warned.come)
    try:
        yield warned
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if ended_by and ended_by[0] != signal.SIGINT:
            with suppress(OSError):  # after SIGHUP there may be no terminal
                name = signal.Signals(ended_by[0]).name
                print(f"ssfx: ended by {name}; finished runs are kept and the same command continues", file=sys.stderr)
