"""The heartbeat: what a rank is doing now, readable by the launcher even after the rank was killed. No torch here."""

import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from ssfx.core.files import replacing

SIZE = 512
_SUM_BYTES = 4
_TRIES = 5
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
        # The launcher never sees a file of another size.
        with replacing(heartbeat_path(attempt_dir, rank), "w+b") as file:
            file.write(self._text(0, "setup", ""))
            file.flush()
            self._map = mmap.mmap(file.fileno(), SIZE)

    def beat(self, step: int, phase: str, error: str = "") -> None:
        """Publish step and phase."""
        self._map[:] = self._text(step, phase, error)

    @staticmethod
    def _text(step: int, phase: str, error: str) -> bytes:
        line = " ".join(error.split())
        text = f"{os.getpid()} {step} {phase} {line}".encode("ascii", "replace")[: SIZE - _SUM_BYTES]
        text = text.ljust(SIZE - _SUM_BYTES, b"\0")
        return text + crc32(text).to_bytes(_SUM_BYTES, "little")


def read_beat(attempt_dir: Path, rank: int) -> Beat | None:
    """Return the last beat of `rank`, None when it has not begun.

    None, too, for a file that is no beat: processes are ended by the number in it. One that is read while it is written
    is read again.
    """
    for _ in range(_TRIES):
        try:
            whole = heartbeat_path(attempt_dir, rank).read_bytes()
        except OSError:
            return None
        text, checksum = whole[:-_SUM_BYTES], whole[-_SUM_BYTES:]
        if len(whole) == SIZE and crc32(text) == int.from_bytes(checksum, "little"):
            pid, step, phase, error = (*text.rstrip(b"\0").decode("ascii").split(" ", 3), "")[:4]
            return Beat(int(pid), int(step), phase, error.strip())
    return None
