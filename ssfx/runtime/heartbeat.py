"""The heartbeat: what a rank is doing now, readable by the launcher even after the rank was killed. No torch here."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from pathlib import Path

SIZE = 512
PHASES = ("setup", "data", "forward", "backward", "exchange", "step", "evaluate", "checkpoint")
QUIET = ("setup", "compile", "evaluate", "checkpoint")
"""Phases in which a healthy rank may write nothing for long; a kernel is compiled inside one of the others."""


def heartbeat_path(attempt_dir: Path, rank: int) -> Path:
    """Return where `rank` keeps its heartbeat."""
    return attempt_dir / f"rank{rank}.state"


@dataclass(frozen=True)
class Beat:
    """Process id, optimizer step under way and phase of one rank; a rank that dies of an exception sets `error`."""

    pid: int
    step: int
    phase: str
    error: str = ""


class Heartbeat:
    """Writes Beats to a file of fixed size through shared memory.

    A beat costs about a microsecond, survives SIGKILL, and can still be written when the disk is full, because the
    file's one block was allocated when it was made.
    """

    def __init__(self, attempt_dir: Path, rank: int) -> None:
        path = heartbeat_path(attempt_dir, rank)
        temporary = path.with_suffix(".tmp")
        with temporary.open("w+b") as file:
            file.write(self._text(0, "setup", ""))
            file.flush()
            self._map = mmap.mmap(file.fileno(), SIZE)
        temporary.replace(path)  # the launcher never sees a file of another size

    def beat(self, step: int, phase: str, error: str = "") -> None:
        """Publish step and phase."""
        self._map[:] = self._text(step, phase, error)

    @staticmethod
    def _text(step: int, phase: str, error: str) -> bytes:
        line = " ".join(error.split())
        text = f"{os.getpid()} {step} {phase} {line}".encode("ascii", "replace")
        return text[:SIZE].ljust(SIZE, b"\0")


def read_beat(attempt_dir: Path, rank: int) -> Beat | None:
    """Return the last beat of `rank`, None when it has not begun."""
    try:
        text = heartbeat_path(attempt_dir, rank).read_bytes().rstrip(b"\0").decode("ascii", "replace")
    except FileNotFoundError:
        return None
    pid, step, phase, error = (*text.split(" ", 3), "")[:4]
    return Beat(int(pid), int(step), phase, error.strip())
