"""The slurm engine: every case is a task of an array that Slurm runs when it has the nodes; this process waits."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

from ssfx.core.case import Case
from ssfx.core.errors import ConfigError, RunError
from ssfx.core.files import read_json, write_atomic
from ssfx.engines.base import Engine, engines
from ssfx.engines.failure import RunsFailed
from ssfx.engines.progress import Report
from ssfx.engines.sbatch import Shape, missing, queued, script, submit
from ssfx.engines.torchrun import TRAIN, check_measured
from ssfx.perf_model.cluster_file import cluster_on
from ssfx.results.manifest import now
from ssfx.results.rows import Row
from ssfx.results.store import Store

LOOK_S = 5.0
SETTLE_S = 30.0
"""Seconds that a shared file system may take to show here what a node wrote before its task left the queue."""


class Slurm(Engine):
    """Runs each case in a Slurm allocation of its own, as many at a time as Slurm finds nodes for.

    A command that is interrupted leaves its tasks to Slurm; the same command finds them again and waits for them.
    When a case fails the others go on, and RunError is raised after the last.
    """

    name = "slurm"
    summary = "real processes on nodes of a Slurm cluster, one array task for each case"

    def __init__(self, train: str = TRAIN, look_s: float = LOOK_S, settle_s: float = SETTLE_S) -> None:
        self._train = train
        self._look_s = look_s
        self._settle_s = settle_s

    def run(
        self, cases: Sequence[Case], store: Store, *, progress: bool = True, stall_timeout_s: float | None = None,
        jobs: int = 1, fail_fast: bool = False,
    ) -> list[Row]:  # fmt: skip
        """Return one row per case; see Engine."""
        if problem := missing():
            raise ConfigError(f"engine=slurm cannot submit anything, {problem}; use engine=simulate, or a login node")
        unique = {case.run_id: case for case in cases}
        check_measured(unique.values())
        rows: dict[str, Row] = {}
        tasks: dict[str, str] = {}
        with Report(list(unique.values()), progress) as report:
            try:
                queue, new = queued(say=report.note), []
                for run_id, case in unique.items():
                    if row := store.row(case):
                        rows[run_id] = row
                        report.known(row)
                    elif (task := _ticket(store, case).get("task", "")) in queue:
                        tasks[run_id] = task
                        report.note(f"run {run_id} ({case.label}) is Slurm's task {task} already")
                    else:
                        new.append(case)
                for shape, group in _shapes(new).items():
                    tasks |= self._submitted(shape, group, store, report, stall_timeout_s)
                self._wait(tasks, unique, store, report, rows)
            except KeyboardInterrupt:
                numbers = sorted({task.partition("_")[0] for task in tasks.values()})
                if numbers:
                    report.note(
                        f"Slurm goes on without this command; to end the tasks too: scancel {' '.join(numbers)}"
                    )
                raise
            except OSError as error:
                raise RunError(f"cannot keep results in {store.runs}: {error}") from error
        return [rows[case.run_id] for case in cases]

    def _submitted(
        self, shape: Shape, cases: Sequence[Case], store: Store, report: Report, stall_timeout_s: float | None
    ) -> dict[str, str]:
        """Return the task of each run in the array that was submitted for them."""
        name = sha256("".join([now(), *(case.run_id for case in cases)]).encode()).hexdigest()[:12]
        folder = store.runs.parent / "slurm" / name
        folder.mkdir(parents=True)
        sweep = {
            "root": str(store.runs.parent), "train": self._train, "stall_timeout_s": stall_timeout_s,
            "cases": [asdict(case) for case in cases],
        }  # fmt: skip
        write_atomic(folder / "sweep.json", json.dumps(sweep))
        command = [sys.executable, "-m", "ssfx.engines.allocation", str(folder / "sweep.json")]
        (folder / "array.sh").write_text(script(shape, len(cases), command, folder / "task-%a.log"))
        job = submit(folder / "array.sh")
        tasks = {case.run_id: f"{job}_{number}" for number, case in enumerate(cases)}
        for number, case in enumerate(cases):
            attempts = max(store.attempts(case), default=0)
            log = folder / f"task-{number}.log"
            ticket = {"task": f"{job}_{number}", "log": str(log), "attempts": attempts}
            store.run_dir(case).mkdir(parents=True, exist_ok=True)
            write_atomic(store.run_dir(case) / "slurm.json", json.dumps(ticket) + "\n")
        report.note(
            f"slurm: job {job}, {len(cases)} task(s) of {shape.nodes} node(s), {shape.ranks_per_node} rank(s) on each; "
            f"logs in {folder}"
        )
        return tasks

    def _wait(
        self, tasks: dict[str, str], cases: dict[str, Case], store: Store, report: Report, rows: dict[str, Row]
    ) -> None:
        """Add the row of every task to `rows`; RunError when all are over and one left none."""
        failures: dict[str, str] = {}
        reasons: set[str] = set()
        gone_s: dict[str, float] = {}
        while tasks:
            queue, looked_s = queued(say=report.note), time.monotonic()
            for reason in {queue.get(task, "") for task in tasks.values()} - reasons - {""}:
                reasons.add(reason)
                report.note(f"slurm: tasks wait for {reason}")
            for run_id, task in list(tasks.items()):
                case = cases[run_id]
                if row := store.row(case):
                    rows[run_id] = row
                    report.finished(row)
                    del tasks[run_id]
                elif task not in queue and (
                    _failed(store, case) or looked_s - gone_s.setdefault(run_id, looked_s) >= self._settle_s
                ):
                    failures[run_id] = _failure(store, case)
                    report.failed(case, failures[run_id])
                    del tasks[run_id]
            if tasks:
                time.sleep(self._look_s)
        if failures:
            raise RunsFailed(failures)


def _shapes(cases: Iterable[Case]) -> dict[Shape, list[Case]]:
    """Group cases by the nodes they need; the tasks of an array are all alike."""
    groups: dict[Shape, list[Case]] = {}
    for case in cases:
        cluster = cluster_on(case.cluster, case.world_size, case.device)
        shape = Shape(cluster.nodes, cluster.devices_per_node, case.device == "cuda")
        groups.setdefault(shape, []).append(case)
    return groups


def _ticket(store: Store, case: Case) -> dict[str, Any]:
    """Return what was written when the case was submitted last, empty if it never was."""
    path = store.run_dir(case) / "slurm.json"
    return dict(read_json(path)) if path.exists() else {}


def _failed(store: Store, case: Case) -> bool:
    """Return whether an attempt made since the case was submitted has failed."""
    return store.status(case) == "failed" and store.attempts(case)[-1] > _ticket(store, case)["attempts"]


def _failure(store: Store, case: Case) -> str:
    """Return what a task that left no row says of itself."""
    ticket = _ticket(store, case)
    log, reason = Path(ticket["log"]), f"Slurm's task {ticket['task']} ended without a word"
    if _failed(store, case):
        folder = store.run_dir(case) / f"attempt-{store.attempts(case)[-1]}"
        reason = str(read_json(folder / "failure.json")["reason"])
    elif log.exists() and (lines := log.read_text(errors="replace").strip().splitlines()):
        reason = f"Slurm's task {ticket['task']} ended with: {lines[-1]}"
    return f"run {case.run_id} ({case.label}) failed: {reason}; see {log}"


engines.add(Slurm())
