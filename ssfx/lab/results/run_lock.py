"""The claim on a run: at most one launcher at a time works on a run directory."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from ssfx.core.files import open_unlinked, own_folder


class RunLock:
    """An exclusive lock on `run_dir`, held until `release`.

    The lock belongs to the open file, not to a file's existence, so the kernel drops it when the last process that
    inherited it has gone: a claim of a dead launcher never has to be recognised as stale. The launcher hands the file
    to torchrun, so that a run whose launcher was killed stays claimed until its ranks have ended too.
    """

    def __init__(self, run_dir: Path, file: int) -> None:
        self.run_dir = run_dir
        self.file = file

    @classmethod
    def take(cls, run_dir: Path, *, wait: bool = False, note: bool = True) -> RunLock | None:
        """Return the claim on `run_dir`, creating it; None when another process holds it and `wait` is false.

        With `note` the file says which process has it.
        """
        own_folder(run_dir)
        file = open_unlinked(run_dir / "lock", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if note:
                os.ftruncate(file, 0)
                os.pwrite(file, str(os.getpid()).encode(), 0)
        except BlockingIOError:
            os.close(file)
            return None
        except BaseException:
            os.close(file)
            raise
        return cls(run_dir, file)

    @staticmethod
    def holder(run_dir: Path) -> str:
        """Return who claimed `run_dir` last, for messages."""
        pid = (run_dir / "lock").read_text().strip()
        return f"process {pid}" if pid else "another process"

    @classmethod
    def is_held(cls, run_dir: Path) -> bool:
        """Return whether a process works on `run_dir` now; the claim is taken and given back to find out."""
        claim = cls.take(run_dir, note=False)
        if claim is None:
            return True
        claim.release()
        return False

    def release(self) -> None:
        """Let others claim the run; a second call does nothing."""
        if self.file >= 0:
            fcntl.flock(self.file, fcntl.LOCK_UN)  # closing is not enough: torchrun holds the same open file
            os.close(self.file)
            self.file = -1
