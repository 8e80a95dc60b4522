"""The torchrun engine: real processes on this machine, one torchrun launch for all cases that can share one."""

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace

from ssfx.core.case import Case, ClusterChoice
from ssfx.core.errors import ConfigError, RequeueError, RunError
from ssfx.core.rows import Row
from ssfx.lab.engines.base import Engine, engines
from ssfx.lab.engines.failure import RunsFailed
from ssfx.lab.engines.job import Job
from ssfx.lab.engines.launch import POLL_S, Launch, Patience, Warned, signals
from ssfx.lab.engines.places import Place, check_room, places
from ssfx.lab.engines.progress import Report
from ssfx.lab.results.manifest import code
from ssfx.lab.results.store import RunLock, Store

TRAIN = "ssfx.lab.workloads.train:train"
MOST_CASES = 100
"""Cases of one launch; each holds a file open in all its processes, and the system allows a thousand or so."""


@dataclass(frozen=True)
class _Sweep:
    """What all queues of one command share: where results go, how long to wait, and what came of the cases so far."""

    store: Store
    report: Report
    patience: Patience
    warned: Warned
    at_a_time: int
    fail_fast: bool
    rows: dict[str, Row] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    stopped: list[str] = field(default_factory=list)
    """What each queue said that was stopped by the warning."""


class Torchrun(Engine):
    """Runs each case under torchrun, one process per rank.

    Cases of equal cluster, world size, device and threads share one launch, because starting one costs seconds. With
    `jobs` > 1 so many launches run at a time, each on cores and GPUs of its own.
    When a case fails the others go on, and RunsFailed is raised after the last; with `fail_fast` at once.
    `train` is the dotted path of the function that ranks call; `patience` decides when a silent run counts as hanging.
    """

    name = "torchrun"
    summary = "real processes on this machine, started by torchrun"
    _starts: Callable[..., Launch] = Launch

    def __init__(self, train: str = TRAIN, patience: Patience | None = None) -> None:
        self._train = train
        self._patience = patience or Patience()

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
        """Return one row per case; see Engine.

        SIGTERM and SIGHUP end the ranks and then this process, with code 143 or 129. SIGUSR1 has the runs under way
        write a checkpoint after one more step; RequeueError then says that the same command continues.
        """
        unique = {case.run_id: case for case in cases}
        check_measured(unique.values())
        check_room(unique.values(), jobs)
        patience = self._patience if stall_timeout_s is None else replace(self._patience, stall_s=stall_timeout_s)
        with signals() as warned, Report(list(unique.values()), progress) as report:
            sweep = _Sweep(store, report, patience, warned, jobs, fail_fast)
            try:
                for batch in _batches(unique.values()):
                    queues = [
                        self._queue(batch[number::jobs], place, sweep)
                        for number, place in enumerate(places(batch[0], jobs))
                    ]
                    _alternate(queues)
            except OSError as error:
                raise RunError(f"cannot keep results in {store.runs}: {error}") from error
        if sweep.stopped:
            failed = [str(RunsFailed(sweep.failures))] if sweep.failures else []
            raise RequeueError("; ".join([sweep.stopped[0], *failed]))
        if sweep.failures:
            raise RunsFailed(sweep.failures)
        return [sweep.rows[case.run_id] for case in cases]

    def _queue(self, cases: list[Case], place: Place, sweep: _Sweep) -> Generator[None, None, None]:
        """Run `cases` one after the other at `place`; yield whenever there is nothing to do but wait."""
        try:
            yield from self._work(cases, place, sweep)
        except RequeueError as error:  # the other queues end at checkpoints of their own
            sweep.stopped.append(str(error))

    def _work(self, cases: list[Case], place: Place, sweep: _Sweep) -> Generator[None, None, None]:
        store, report = sweep.store, sweep.report
        # A case that failed before goes last, so that it cannot keep the others from running.
        pending = sorted(cases, key=lambda case: store.status(case) == "failed")
        while pending:
            sweep.warned.check(f"run {pending[0].run_id} ({pending[0].label}) began")
            jobs: list[Job] = []
            for case in list(pending):
                if len(jobs) == MOST_CASES:
                    break
                row = store.row(case)
                claim = None if row else store.claim(case)
                if claim is not None:
                    row = store.row(case)  # finished by another launcher just before we got the claim?
                if row is not None:
                    pending.remove(case)
                    report.known(row)
                    sweep.rows[case.run_id] = row
                elif claim is not None:
                    pending.remove(case)
                    jobs.append(Job(case, claim, attempt=1 + max(store.attempts(case), default=0)))
                    continue
                if claim is not None:
                    claim.release()
            if jobs:
                pending += yield from self._launch(jobs, place, sweep)
            elif pending:
                yield from _wait(pending[0], sweep)

    def _launch(self, jobs: list[Job], place: Place, sweep: _Sweep) -> Generator[None, None, list[Case]]:
        """Add a row or a failure for each job until the first failure; return the cases that were not reached."""
        first, report = jobs[0].case, sweep.report
        report.note(f"{self.name}: {len(jobs)} case(s) on {first.trained_ranks} {first.trains_on} rank(s)")
        started_with = code()

        try:
            with self._starts(jobs, self._train, sweep.patience, report, sweep.warned, place) as launch:
                if launch.note:
                    report.note(launch.note)
                try:
                    for job in launch.finished():
                        if job is None:
                            yield
                            continue
                        row = _said_to_share(launch.row(job, started_with), sweep.at_a_time)
                        sweep.store.save(row)
                        job.claim.release()
                        report.finished(row)
                        sweep.rows[row.run_id] = row
                except RequeueError:
                    raise
                except RunError as error:  # the ranks are lost with it: what is left needs a launch of its own
                    failed, *left = (job.case for job in jobs if job.case.run_id not in sweep.rows)
                    sweep.failures[failed.run_id] = str(error)
                    report.failed(failed, str(error))
                    if sweep.fail_fast:
                        raise RunsFailed(sweep.failures) from error
                    return left
        finally:
            for job in jobs:
                job.claim.release()
        return []


def _alternate(queues: Iterable[Generator[None, None, None]]) -> None:
    """Go on with each of `queues` in turn until all are over; when one raises, the others are ended first."""
    with ExitStack() as stack:
        left = [stack.enter_context(closing(one)) for one in queues]
        while left := [one for one in left if next(one, _OVER) is not _OVER]:
            time.sleep(POLL_S)


_OVER = object()


def _wait(case: Case, sweep: _Sweep) -> Iterator[None]:
    """Yield until no process holds the claim on the run of `case`."""
    run_dir = sweep.store.run_dir(case)
    sweep.report.note(f"run {case.run_id} ({case.label}) is under way in {RunLock.holder(run_dir)}; waiting for it")
    while (claim := sweep.store.claim(case)) is None:
        sweep.warned.check("another launcher was done")
        yield
    claim.release()


def _said_to_share(row: Row, at_a_time: int) -> Row:
    """Return `row`; where cases ran at the same time, it says how many: they share what is outside of cores."""
    if at_a_time == 1:
        return row
    note = f"up to {at_a_time} cases ran at the same time, on other cores: they share memory bandwidth and the network"
    notes = [*row.manifest["notes"], note]
    return replace(row, manifest={**row.manifest, "jobs": at_a_time, "notes": notes})


def check_measured(cases: Iterable[Case]) -> None:
    """Raise ConfigError when one of `cases` would be over before anything is timed."""
    for case in cases:
        if case.steps <= case.warmup_steps:
            raise ConfigError(
                f"steps={case.steps} leaves nothing to measure after warmup_steps={case.warmup_steps}; "
                f"use warmup_steps={case.steps // 3}"
            )


def _batches(cases: Iterable[Case]) -> list[list[Case]]:
    """Group cases that can share a launch, in the order in which they come."""
    groups: dict[tuple[ClusterChoice, int, str, int], list[Case]] = {}
    for case in cases:
        groups.setdefault((case.cluster, case.world_size, case.device, case.threads), []).append(case)
    return list(groups.values())


engines.add(Torchrun())
