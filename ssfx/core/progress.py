"""What a command is doing, said on standard error once it has computed for a second: silence looks like hanging.

A timer of the process's own computing interrupts it, so that no thread is needed, which would forbid to fork, and so
that waiting for others, who say what they do themselves, counts for nothing. Only commands speak; in a program that
imports ssfx nothing is said and no signal is handled.
"""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

AFTER_S = 1.0
"""Seconds of computing after which something is said."""
AGAIN_S = 5.0
"""Seconds after which something else is."""

_texts: list[str] = []
_said: list[str] = []
_aloud: list[bool] = []


@contextmanager
def aloud() -> Iterator[None]:
    """Inside, `doing` is said on standard error; for commands, which have the process for themselves."""
    _aloud.append(True)
    try:
        yield
    finally:
        _aloud.pop()


@contextmanager
def doing(text: str) -> Iterator[None]:
    """Inside, the process is doing what `text` says, in the form "planning ..."; the innermost text is what is said."""
    first = not _texts and _aloud and hasattr(signal, "ITIMER_VIRTUAL")
    timed = bool(first) and threading.current_thread() is threading.main_thread()
    _texts.append(text)
    if timed:
        _said.clear()
        before = signal.signal(signal.SIGVTALRM, _say)
        signal.setitimer(signal.ITIMER_VIRTUAL, AFTER_S, AGAIN_S)
    try:
        yield
    finally:
        if timed:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, before)
        _texts.pop()


def announce(text: str) -> None:
    """Say what the process is doing at once: what takes long in any event, or is done by others."""
    if _aloud:
        print(f"ssfx: {text} ...", file=sys.stderr, flush=True)


def _say(_number: int, _frame: FrameType | None) -> None:
    if not _texts or _texts[-1] in _said:
        return
    _said.append(_texts[-1])
    with suppress(RuntimeError):  # it was interrupted in writing a line, which is word enough
        announce(_texts[-1])
