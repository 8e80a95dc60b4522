"""A line in the log every hundred steps: how long a step takes, and which part of it waits for the exchange."""

import logging
from time import perf_counter

from ssfx.runtime.stats import StepStats

_log = logging.getLogger("ssfx")
EVERY = 100
"""Steps between two lines."""


class Waiting:
    """Logs on rank 0 at level INFO, so that logging.getLogger("ssfx").setLevel says whether there are lines."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._since: tuple[int, float] | None = None

    def look(self, step: int, last: StepStats) -> None:
        """Log a line where `step` is one of EVERY; times of waiting and compression are of that step."""
        if self._rank or step % EVERY or not _log.isEnabledFor(logging.INFO):
            return
        now = perf_counter()
        if self._since is not None:
            step_s = (now - self._since[1]) / (step - self._since[0])
            waits, works = (share / step_s for share in (last.exposed_comm_s, last.sparsify_s + last.decode_s))
            _log.info(
                "step %d: %.1f ms a step; you wait %.0f %% of it for the exchange and compress in %.0f %%",
                *(step, 1e3 * step_s, 100 * waits, 100 * works),
            )
        self._since = step, now
