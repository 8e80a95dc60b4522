"""`ssfx status --watch`: how far the runs are, again and again until none is under way."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from ssfx.cli.terminal import columns
from ssfx.core.case import Case
from ssfx.core.errors import RunError
from ssfx.core.files import read_json
from ssfx.lab.engines.submission import latest_tasks, missing, queued, submissions
from ssfx.lab.results.store import RunLock
from ssfx.lab.worker.heartbeat import read_beat

if TYPE_CHECKING:
    from ssfx.lab.results.store import Store

LOOK_S = 5.0
SHOWN = 20
"""Runs that are named at a time."""


@dataclass
class Snapshot:
    """How far the runs are at one moment."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    """By experiment: runs that are finished, running, waiting in Slurm, failed, half-finished."""
    running: list[str] = field(default_factory=list)
    """A line for each run that is under way."""
    trouble: str = ""
    """Why Slurm's queue is not known."""

    @property
    def lines(self) -> list[str]:
        """What is shown of it."""
        order = ("finished", "running", "waiting in Slurm", "failed", "half-finished")
        lines = [
            f"{experiment}: " + ", ".join(f"{counts[state]} {state}" for state in order if counts[state])
            for experiment, counts in sorted(self.counts.items())
        ]
        more = [f"  and {len(self.running) - SHOWN} more"] if len(self.running) > SHOWN else []
        return [*lines, *self.running[:SHOWN], *more, *([self.trouble] if self.trouble else [])]

    @property
    def under_way(self) -> bool:
        """Whether anything may still change without a new command."""
        return bool(self.trouble) or any(one["running"] or one["waiting in Slurm"] for one in self.counts.values())


def watch(store: Store, look_s: float = LOOK_S) -> None:
    """Show the runs of `store` every `look_s` seconds, in a log file only what has changed, until none is under way."""
    screen = columns() is not None
    shown: list[str] = []
    while True:
        now = snapshot(store)
        if screen:
            click.clear()
        if now.lines != shown:
            click.echo(f"{time.strftime('%H:%M:%S')}  {store.runs}")
            click.echo("\n".join(now.lines) if now.lines else "no runs yet; start with: ssfx run")
            shown = [] if screen else now.lines
        if not now.under_way:
            return
        time.sleep(look_s)


def snapshot(store: Store) -> Snapshot:
    """Return how far the runs in the store, and those that Slurm was given, are now."""
    found = Snapshot()
    queue: dict[str, str] = {}
    submitted = submissions(store)
    if submitted and not missing():
        try:
            queue = queued(tries=1)
        except RunError as error:
            found.trouble = f"Slurm's queue is not known: {error}"
    tasks = latest_tasks(submitted)
    experiments = {run_id: one.experiment for one in submitted for run_id in one.tasks}
    folders = {path.parent.name: path for path in store.runs.glob("*/case.json")}
    for run_id in sorted({*folders, *tasks}):
        folder = store.runs / run_id
        case = Case.of(read_json(folders[run_id])) if run_id in folders else None
        experiment = case.experiment if case else experiments[run_id]
        task = tasks.get(run_id)
        if (folder / "row.json").exists():
            state = "finished"
        elif case is not None and RunLock.is_held(folder):
            state = "running"
            found.running.append(f"  {run_id}  {case.label}  {_progress(store, case)}")
        elif task is not None and task.task in queue:
            state = "waiting in Slurm"
        else:
            failed = case is not None and store.status(case) == "failed"
            state = "failed" if failed else "half-finished"
        found.counts.setdefault(experiment, Counter())[state] += 1
    return found


def _progress(store: Store, case: Case) -> str:
    """Return the step and phase of rank 0 of a run that is under way."""
    attempts = store.attempts(case)
    beat = read_beat(store.run_dir(case) / f"attempt-{attempts[-1]}", 0) if attempts else None
    return f"step {beat.step} of {case.steps}, {beat.phase}" if beat else "starting"
