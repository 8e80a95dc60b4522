"""What is said to Slurm: the script of an array of tasks, its submission, and which tasks are still in the queue."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from ssfx.core.errors import ConfigError, RunError

TRIES = 10
PAUSE_S = 30.0
"""A controller that does not answer is asked so often, with so many seconds between."""

_COMMAND_S = 120


@dataclass(frozen=True)
class Shape:
    """The nodes that one task needs: how many, and the ranks of each, with a GPU each or on the CPU."""

    nodes: int
    ranks_per_node: int
    gpus: bool


def script(shape: Shape, tasks: int, command: Sequence[str], log: Path) -> str:
    """Return a batch script for `tasks` array tasks; each runs `command` with its number on the first of its nodes.

    Nodes are asked for whole: what is measured while others run is not a measurement. Everything a site wants besides
    (partition, account, time limit) is left to Slurm's own SBATCH_ variables. ConfigError for a folder of the `log`
    whose name no script can hold; "%a" in the name of the file is the task's number.
    """
    if bad := sorted(set(str(log.parent)) & set('"\\\n\r')):
        raise ConfigError(f"Slurm cannot write logs below {str(log.parent)!r}, because of {bad[0]!r}; set SSFX_RESULTS")
    output = Path(str(log.parent).replace("%", "%%")) / log.name
    gpus = [f"--gres=gpu:{shape.ranks_per_node}"] if shape.gpus else []
    options = [
        "--job-name=ssfx", f"--array=0-{tasks - 1}", f"--nodes={shape.nodes}", "--ntasks-per-node=1", *gpus,
        "--exclusive", f'--output="{output}"',
    ]  # fmt: skip
    lines = ["#!/bin/bash", *(f"#SBATCH {option}" for option in options)]
    return "\n".join([*lines, f'exec {shlex.join(command)} "$SLURM_ARRAY_TASK_ID"', ""])


def missing() -> str:
    """Return why nothing can be submitted from here, "" when it can."""
    absent = [program for program in ("sbatch", "squeue") if shutil.which(program) is None]
    return f"{absent[0]} is not on the PATH" if absent else ""


def submit(path: Path) -> str:
    """Return the number of the job that Slurm made of the script at `path`; RunError with Slurm's own words."""
    return _said(["sbatch", "--parsable", str(path)]).partition(";")[0]


def queued(tries: int = TRIES, pause_s: float = PAUSE_S, say: Callable[[str], None] | None = None) -> dict[str, str]:
    """Return why this user's array tasks wait, "" for those that run, by "job_task"; RunError when Slurm is silent.

    At its first silence, `say` gets one line with the time until which Slurm will be asked again.
    """
    command = ["squeue", "--me", "--noheader", "--array", "--format=%F_%K %t %r"]
    for left in range(tries - 1, 0, -1):
        try:
            return _tasks(_said(command))
        except RunError as error:
            if say is not None and left == tries - 1:
                end = datetime.now().astimezone() + timedelta(seconds=left * pause_s)
                say(f"{error}; asking Slurm until {end:%H:%M}")
            time.sleep(pause_s)
    return _tasks(_said(command))


def _tasks(text: str) -> dict[str, str]:
    lines = (line.split(maxsplit=2) for line in text.splitlines())
    return {task: " ".join(reason) if state == "PD" else "" for task, state, *reason in lines}


def _said(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunError(f"{command[0]} did not answer: {error}") from None
    if done.returncode:
        raise RunError(f"{command[0]} failed: {' '.join(done.stderr.split()) or f'exit code {done.returncode}'}")
    return done.stdout.strip()
