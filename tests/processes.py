"""Processes that tests start: Ctrl-C means to them what the test says, and none is left whatever happens."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

HANG_S = 600.0
"""Seconds after which what a test waits for counts as hanging: far beyond what it needs on a slow and busy machine."""
_TOKEN = "SSFX_TEST_TOKEN"
_INTO = (
    "import os, signal, sys; signal.signal(signal.SIGINT, getattr(signal, sys.argv[1])); "
    "[signal.signal(number, signal.SIG_DFL) for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1)]; "
    "os.execvp(sys.argv[2], sys.argv[2:])"
)


class Started:
    """What is started inside this context carries a token in its environment, and so does all that it starts.

    On leaving, every process that carries it is killed, and those started by `start` have been waited for.
    """

    def __init__(self, token: str) -> None:
        self._token = token
        self._processes: list[subprocess.Popen[Any]] = []

    def __enter__(self) -> Started:
        self._before = os.environ.get(_TOKEN)
        os.environ[_TOKEN] = self._token
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is None:
            del os.environ[_TOKEN]
        else:
            os.environ[_TOKEN] = self._before
        while left := self.left():  # one may have started another just before it was killed
            for process in left:
                if process.is_running():
                    process.kill()
            time.sleep(0.01)
        for started in self._processes:
            for pipe in (started.stdin, started.stdout, started.stderr):
                if pipe is not None:
                    pipe.close()
            started.wait()

    def start(self, command: Sequence[Any], *, ctrl_c: bool = True, **options: Any) -> subprocess.Popen[Any]:
        """Start `command`; SIGINT is at its default there, or ignored, whatever it is in the process that tests.

        A shell without job control and cron ignore it for all that they start; nohup ignores SIGHUP, which is at its
        default there, as are SIGTERM and SIGUSR1.
        """
        words = [sys.executable, "-S", "-c", _INTO, "SIG_DFL" if ctrl_c else "SIG_IGN", *command]
        process = subprocess.Popen(words, **options)
        self._processes.append(process)
        return process

    def left(self) -> list[psutil.Process]:
        """Return the processes that run and carry the token."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(_TOKEN) == self._token:
                    found.append(process)
            except (psutil.Error, OSError):  # it has ended, or is another user's
                continue
        return [process for process in found if runs(process)]


def torchrun(folder: Path, *words: Any) -> list[Any]:
    """Return the command that starts two ranks of `words`, which meet in `folder`: not where strangers can write."""
    meet = ["--rdzv-backend=c10d", "--rdzv-conf=store_type=file", f"--rdzv-endpoint={folder / 'rendezvous'}"]
    return [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", *meet, *words]


def finished(command: Sequence[Any], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run `command` to its end and return what it said; nothing that it started is left, even if it hangs."""
    with Started(f"{os.getpid()}-{time.monotonic_ns()}") as started:
        process = started.start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
        out, err = process.communicate(timeout=HANG_S)
        return subprocess.CompletedProcess(command, process.returncode, out, err)


def runs(process: psutil.Process) -> bool:
    """True while `process` computes or could; a zombie does not, and where nobody waits for orphans it stays one."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until(true: Callable[[], Any]) -> None:
    """Return once `true` is."""
    end = time.monotonic() + HANG_S
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
