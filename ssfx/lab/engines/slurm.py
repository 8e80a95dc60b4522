"""The slurm engine: every case is a task of an array that Slurm runs when it has the nodes; this process waits."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ssfx.core.case import Case
from ssfx.core.errors import ConfigError, RunError
from ssfx.core.files import read_json, write_atomic
from ssfx.core.rows import Row
from ssfx.core.slurm_site import Site
from ssfx.lab.engines.base import Engine, engines
from ssfx.lab.engines.failure import RunsFailed
from ssfx.lab.engines.progress import Report
from ssfx.lab.engines.submission import (
    Array,
    ArrayTask,
    arrays,
    cancel,
    ended_as,
    latest_tasks,
    missing,
    queued,
    submissions,
    submit_array,
    submitting,
)
from ssfx.lab.engines.torchrun import TRAIN, check_measured
from ssfx.lab.results.store import Store

LOOK_S = 5.0
SETTLE_S = 30.0
"""Seconds that a shared file system may take to show here what a node wrote before its task left the queue."""


def check_here() -> None:
    """ConfigError where nothing can be submitted from here."""
    if problem := missing():
        raise ConfigError(f"engine=slurm cannot submit anything, {problem}; use engine=simulate, or a login node")


@dataclass
class Slurm(Engine):
    """Runs each case in a Slurm allocation of its own, as many at a time as Slurm finds nodes for.

    A command that is interrupted leaves its tasks to Slurm; the same command finds them again and waits for them.
    When a case fails the others go on, and RunsFailed is raised after the last; with `fail_fast` the others are ended.
    `site` is what is asked for besides nodes.
    """

    name = "slurm"
    summary = "real processes on nodes of a Slurm cluster, one array task for each case"

    train: str = TRAIN
    look_s: float = LOOK_S
    settle_s: float = SETTLE_S
    site: Site = field(default_factory=Site)

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
        """Return one row per case; see Engine."""
        unique = {case.run_id: case for case in cases}
        rows: dict[str, Row] = {}
        tasks: dict[str, ArrayTask] = {}
        with Report(list(unique.values()), progress) as report:
            try:
                tasks |= self._submitted(list(unique.values()), store, report, stall_timeout_s, rows)
                self._wait(tasks, unique, store, report, rows, fail_fast)
            except KeyboardInterrupt:
                if tasks:
                    end = f"ssfx cancel {' '.join(sorted({case.experiment for case in cases}))}"
                    report.note(f"Slurm goes on without this command; to end the tasks too: {end}")
                raise
            except OSError as error:
                raise RunError(f"cannot keep results in {store.runs}: {error}") from error
        return [rows[case.run_id] for case in cases]

    def submit(self, cases: Sequence[Case], store: Store, stall_timeout_s: float | None = None) -> list[str]:
        """Return the jobs that were submitted for those of `cases` that are not finished and not with Slurm already."""
        before = {one.job for one in submissions(store)}
        with Report(cases, True) as report:
            self._submitted(cases, store, report, stall_timeout_s, {})
        return [one.job for one in submissions(store) if one.job not in before]

    def planned(self, cases: Sequence[Case], store: Store) -> list[Array]:
        """Return the arrays that would be submitted if Slurm had none of `cases` yet; nothing is written."""
        check_measured(cases)
        return arrays([case for case in cases if store.row(case) is None], store, self.site)

    def _submitted(
        self, cases: Sequence[Case], store: Store, report: Report, stall_timeout_s: float | None, rows: dict[str, Row]
    ) -> dict[str, ArrayTask]:
        """Return where Slurm has each unfinished run, by run id, once those that it had not are submitted."""
        check_here()
        check_measured(cases)
        tasks: dict[str, ArrayTask] = {}
        with submitting(store):
            queue, before, new = queued(say=report.note), latest_tasks(submissions(store)), []
            for case in cases:
                if row := store.row(case):
                    rows[case.run_id] = row
                    report.known(row)
                elif (known := before.get(case.run_id)) and known.task in queue:
                    tasks[case.run_id] = known
                    report.note(f"run {case.run_id} ({case.label}) is Slurm's task {known.task} already")
                else:
                    new.append(case)
            for array in arrays(new, store, self.site):
                done = submit_array(array, store, self.train, stall_timeout_s, self.site)
                tasks |= done.tasks
                report.note(
                    f"slurm: job {done.job}, {len(array.cases)} task(s) of {array.shape.nodes} node(s), "
                    f"{array.shape.ranks_per_node} rank(s) on each; logs in {array.folder}"
                )
        return tasks

    def _wait(
        self,
        tasks: dict[str, ArrayTask],
        cases: Mapping[str, Case],
        store: Store,
        report: Report,
        rows: dict[str, Row],
        fail_fast: bool,
    ) -> None:
        """Add the row of every task to `rows`; RunsFailed when all are over and one left none."""
        failures: dict[str, str] = {}
        reasons: set[str] = set()
        gone_s: dict[str, float] = {}
        while tasks:
            queue, looked_s = queued(say=report.note), time.monotonic()
            for reason in {queue.get(task.task, "") for task in tasks.values()} - reasons - {""}:
                reasons.add(reason)
                report.note(f"slurm: tasks wait for {reason}")
            for run_id, task in list(tasks.items()):
                case = cases[run_id]
                if row := store.row(case):
                    rows[run_id] = row
                    report.finished(row)
                    del tasks[run_id]
                elif task.task not in queue and (
                    _failed(store, case, task) or looked_s - gone_s.setdefault(run_id, looked_s) >= self.settle_s
                ):
                    failures[run_id] = _failure(store, case, task)
                    report.failed(case, failures[run_id])
                    del tasks[run_id]
            if failures and fail_fast:
                cancel([task.task for task in tasks.values() if task.task in queue])
                raise RunsFailed(failures)
            if tasks:
                time.sleep(self.look_s)
        if failures:
            raise RunsFailed(failures)


def _failed(store: Store, case: Case, task: ArrayTask) -> bool:
    """Return whether an attempt made since the case was submitted has failed."""
    return store.status(case) == "failed" and store.attempts(case)[-1] > task.attempts


def _failure(store: Store, case: Case, task: ArrayTask) -> str:
    """Return what a task that left no row says of itself; its run counts as failed from now on."""
    if _failed(store, case, task):
        folder = store.run_dir(case) / f"attempt-{store.attempts(case)[-1]}"
        reason = str(read_json(folder / "failure.json")["reason"])
    else:
        how = ended_as(task.task)
        lines = task.log.read_text(errors="replace").strip().splitlines() if task.log.exists() else []
        reason = f"Slurm's task {task.task} ended " + " ".join(
            filter(
                None,
                [
                    f"as {how}" if how else "",
                    f"with: {lines[-1]}" if lines else "" if how else "without a word",
                ],
            )
        )
        _mark_failed(store, case, reason)
    return f"run {case.run_id} ({case.label}) failed: {reason}; see {task.log}"


def _mark_failed(store: Store, case: Case, reason: str) -> None:
    """Make a run that Slurm ended, which could say nothing itself, a failed one."""
    claim = store.claim(case)
    if claim is None:  # another command runs it by now
        return
    try:
        folder = store.run_dir(case) / f"attempt-{1 + max(store.attempts(case), default=0)}"
        folder.mkdir()
        report = {"rank": None, "phase": "setup", "step": 0, "reason": reason}
        write_atomic(folder / "failure.json", json.dumps(report) + "\n")
    finally:
        claim.release()


engines.add(Slurm())
