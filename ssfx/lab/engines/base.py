"""What an engine is: it turns cases into rows and leaves them in a store."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from ssfx.core.case import Case
from ssfx.core.registry import Registry
from ssfx.core.rows import Row
from ssfx.lab.results.store import Store


class Engine(ABC):
    """One way to obtain rows."""

    name: ClassVar[str]
    summary: ClassVar[str]
    kind: ClassVar[str] = "measured"
    """What its rows are, as `Row.kind`."""

    @abstractmethod
    def run(
        self,
        cases: Sequence[Case],
        store: Store,
        *,
        progress: bool = True,
        stall_timeout_s: float | None = None,
        jobs: int = 1,
        fail_fast: bool = False,
    ) -> list[Row]:
        """Return one row per case, in the order given; finished cases are read from the store, the others are run.

        `stall_timeout_s` without any progress end a run as hanging; None: as long as the engine finds right.
        `jobs` cases may run at the same time. A case that fails does not keep the others from running; RunsFailed after
        the last, or at once with `fail_fast`, says which ones failed, and the rows of the others are in the store.
        ConfigError before anything starts when a case, or so many at the same time, cannot be run by this engine.
        """


engines: Registry[Engine] = Registry("engine", "ssfx.lab.engines")
