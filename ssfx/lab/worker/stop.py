"""Stopping at a checkpoint on request: all ranks after the same step, without a message of their own in other steps.

Ending with the launcher, however that ended.
"""

import os
import signal
import stat
import threading
from pathlib import Path
from typing import Any

from ssfx.core.files import created, write_atomic

REQUEST = "stop"
"""File in an attempt's directory that asks its ranks to stop; the launcher or a rank makes it."""
_LAST_STEP = "stop-after"


class StopRequests:
    """Tells a rank after each step whether it is the last one.

    Rank 0 looks for the request. When it finds one after step k, it publishes that step k + 1 is the last before it
    begins that step. No rank ends step k + 1 without what rank 0 contributes to its exchange, so then every rank finds
    what was published; before, it does not matter whether it does. It is published in a file of the attempt's
    directory, or, to ranks of other machines, whose view of that file may be late, in the store they met in.
    """

    def __init__(self, attempt_dir: Path, rank: int, *, one_machine: bool = True) -> None:
        self._request = attempt_dir / REQUEST
        self._file = attempt_dir / _LAST_STEP
        self._key = f"ssfx/{attempt_dir.parent.name}/{attempt_dir.name}/{_LAST_STEP}"
        self._rank = rank
        self._store: Any = None if one_machine else _default_store()
        self._signalled = False
        self._last: int | None = None

    def listen(self) -> None:
        """From now on SIGUSR1 to this rank is a request, too."""
        signal.signal(signal.SIGUSR1, self._signal)

    def _signal(self, number: int, frame: Any) -> None:
        self._signalled = True

    def after(self, step: int) -> bool:
        """Return whether `step`, which this rank has finished, is the last before the checkpoint."""
        if self._signalled:
            self._signalled = False
            created(self._request).close()
        if self._last is None:
            self._last = self._published()
        if self._last is None and self._rank == 0 and self._request.exists():
            self._last = step + 1
            self._publish(self._last)
        return self._last is not None and step >= self._last

    def _publish(self, step: int) -> None:
        if self._store is None:
            write_atomic(self._file, str(step))
        else:
            self._store.set(self._key, str(step))

    def _published(self) -> int | None:
        if self._rank == 0:
            return None
        if self._store is not None:
            return int(self._store.get(self._key)) if self._store.check([self._key]) else None
        return int(self._file.read_text()) if self._file.exists() else None


def die_with_launcher() -> None:
    """End this process when the launcher is gone, even killed: its end of the standard input pipe is then closed."""
    if not stat.S_ISFIFO(os.fstat(0).st_mode):
        return

    def wait() -> None:
        os.read(0, 1)
        os._exit(1)

    threading.Thread(target=wait, name="launcher-watch", daemon=True).start()


def _default_store() -> Any:
    from torch.distributed import distributed_c10d  # late: the launcher imports this file, and no torch

    return distributed_c10d._get_default_store()
