"""Parts of this machine that cases run on at the same time: their own cores and GPUs, which no two of them share."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from ssfx.core import machine
from ssfx.core.case import Case
from ssfx.core.errors import ConfigError


@dataclass(frozen=True)
class Place:
    """Where one of the launches runs that are under way at the same time."""

    cores: tuple[int, ...] = ()
    """Numbers of the cores that its ranks may use; none: all that this process may."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """What its ranks have besides in their environment: the GPUs that they see."""

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Processes that this thread starts inside stay on the cores of the place."""
        if not self.cores:
            yield
            return
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, self.cores)
        try:
            yield
        finally:
            os.sched_setaffinity(0, before)


def places(case: Case, jobs: int) -> list[Place]:
    """Return `jobs` places that share no core and no GPU, each with room for a case like `case`.

    ConfigError, one line, where there are not so many; the whole machine, as it is, for one job.
    """
    if jobs == 1:
        return [Place()]
    cores = len(machine.own_cores())
    needed = case.processes * case.threads if case.trains_on == "cpu" else 1
    if jobs * needed > cores:
        ranks = f"of {case.processes} ranks with {case.threads} thread(s) each" if case.trains_on == "cpu" else ""
        raise ConfigError(
            f"jobs={jobs} cases {ranks} need {jobs * needed} cores, and {cores} are here; "
            f"use jobs={max(1, cores // needed)}"
        )
    shares = machine.core_shares(jobs)
    if case.trains_on == "cpu":
        return [Place(tuple(share)) for share in shares]
    gpus = machine.visible_gpus()
    if jobs * case.processes > len(gpus):
        raise ConfigError(
            f"jobs={jobs} cases of {case.processes} ranks need {jobs * case.processes} GPUs, and {len(gpus)} are "
            f"here; use jobs={max(1, len(gpus) // case.processes)}"
        )
    parts = [gpus[n * case.processes : (n + 1) * case.processes] for n in range(jobs)]
    return [
        Place(tuple(share), {"CUDA_VISIBLE_DEVICES": ",".join(part)}) for share, part in zip(shares, parts, strict=True)
    ]


def check_room(cases: Iterable[Case], jobs: int) -> None:
    """Raise ConfigError when `jobs` of the cases cannot run at the same time without sharing cores or GPUs."""
    for case in {(case.trains_on, case.processes, case.threads): case for case in cases}.values():
        places(case, jobs)
