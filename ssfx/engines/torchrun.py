"""The torchrun engine: real processes on this machine, one torchrun launch for all cases that can share one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ssfx.core.case import Case, ClusterChoice
from ssfx.core.errors import ConfigError, RequeueError, RunError
from ssfx.engines.base import Engine, engines
from ssfx.engines.failure import summed_up
from ssfx.engines.job import Job
from ssfx.engines.launch import Launch, Patience
from ssfx.engines.progress import Report
from ssfx.engines.signals import Warned, signals
from ssfx.results.manifest import code
from ssfx.results.rows import Row
from ssfx.results.run_lock import RunLock
from ssfx.results.store import Store

TRAIN = "ssfx.workloads.train:train"


class Torchrun(Engine):
    """Runs each case under torchrun, one process per rank.

    Cases of equal cluster, world size, device and threads share one launch, because starting one costs seconds.
    When a case fails the others go on, and RunError is raised after the last.
    `train` is the dotted path of the function that ranks call; `patience` decides when a silent run counts as hanging.
    """

    name = "torchrun"
    summary = "real processes on this machine, started by torchrun"
    _starts: type[Launch] = Launch

    def __init__(self, train: str = TRAIN, patience: Patience | None = None) -> None:
        self._train = train
        self._patience = patience or Patience()

    def run(
        self, cases: Sequence[Case], store: Store, *, progress: bool = True, stall_timeout_s: float | None = None
    ) -> list[Row]:
        """Return one row per case; see Engine.

        SIGTERM and SIGHUP end the ranks and then this process, with code 143 or 129. SIGUSR1 has the run under way
        write a checkpoint after one more step; RequeueError then says that the same command continues.
        """
        unique = {case.run_id: case for case in cases}
        check_measured(unique.values())
        patience = self._patience if stall_timeout_s is None else replace(self._patience, stall_s=stall_timeout_s)
        rows: dict[str, Row] = {}
        failures: dict[str, str] = {}
        with signals() as warned, Report(list(unique.values()), progress) as report:
            try:
                for batch in _batches(unique.values()):
                    self._run_batch(batch, store, report, rows, failures, patience, warned)
            except RequeueError as error:
                raise RequeueError(f"{error}; {summed_up(failures)}") if failures else error from None
            except OSError as error:
                raise RunError(f"cannot keep results in {store.runs}: {error}") from error
        if failures:
            raise RunError(summed_up(failures))
        return [rows[case.run_id] for case in cases]

    def _run_batch(
        self, batch: list[Case], store: Store, report: Report, rows: dict[str, Row], failures: dict[str, str],
        patience: Patience, warned: Warned,
    ) -> None:  # fmt: skip
        # A case that failed before goes last, so that it cannot keep the others from running.
        pending = sorted(batch, key=lambda case: store.status(case) == "failed")
        while pending:
            warned.check(f"run {pending[0].run_id} ({pending[0].label}) began")
            jobs = []
            for case in list(pending):
                row = store.row(case)
                claim = None if row else store.claim(case)
                if claim is not None:
                    row = store.row(case)  # finished by another launcher just before we got the claim?
                if row is not None:
                    pending.remove(case)
                    report.known(row)
                    rows[case.run_id] = row
                elif claim is not None:
                    pending.remove(case)
                    jobs.append(Job(case, claim, attempt=1 + max(store.attempts(case), default=0)))
                    continue
                if claim is not None:
                    claim.release()
            if jobs:
                pending += self._launch(jobs, store, report, rows, failures, patience, warned)
            elif pending:
                with warned.waiting():
                    self._wait(pending[0], store, report)

    def _launch(
        self, jobs: list[Job], store: Store, report: Report, rows: dict[str, Row], failures: dict[str, str],
        patience: Patience, warned: Warned,
    ) -> list[Case]:  # fmt: skip
        """Add a row or a failure for each job until the first failure; return the cases that were not reached."""
        first = jobs[0].case
        report.note(f"{self.name}: {len(jobs)} case(s) on {first.world_size} {first.device} rank(s)")
        started_with = code()

        def on_record(job: Job, record: dict[str, Any]) -> None:
            report.step(job.case, record)

        def on_wait(job: Job, what: str) -> None:
            report.waits(job.case, what)

        try:
            with self._starts(jobs, self._train, patience, on_record, on_wait, warned) as launch:
                if launch.note:
                    report.note(launch.note)
                try:
                    for job in launch.finished():
                        row = launch.row(job, started_with)
                        store.save(row)
                        job.claim.release()
                        report.finished(row)
                        rows[row.run_id] = row
                except RequeueError:
                    raise
                except RunError as error:  # the ranks are lost with it: what is left needs a launch of its own
                    failed, *left = (job.case for job in jobs if job.case.run_id not in rows)
                    failures[failed.run_id] = str(error)
                    report.failed(failed, str(error))
                    return left
        finally:
            for job in jobs:
                job.claim.release()
        return []

    def _wait(self, case: Case, store: Store, report: Report) -> None:
        run_dir = store.run_dir(case)
        report.note(f"run {case.run_id} ({case.label}) is under way in {RunLock.holder(run_dir)}; waiting for it")
        claim = store.claim(case, wait=True)
        assert claim is not None
        claim.release()


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
