"""Arrays of Slurm tasks: what each is to run, what is said to Slurm, under which number it has it, what became of it.

Below results/slurm/ every array has a folder: array.sh, sweep.json (what its tasks read), submitted.json (written when
Slurm has taken it), and the tasks' logs.
"""

import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path

from ssfx.core.case import Case
from ssfx.core.errors import ConfigError, RunError
from ssfx.core.files import read_json, write_atomic
from ssfx.core.slurm_site import Site
from ssfx.lab.results.manifest import now
from ssfx.lab.results.store import RunLock, Store
from ssfx.perf_model.cluster_file import cluster_on

TRIES = 10
PAUSE_S = 30.0
"""A controller that does not answer is asked so often, with so many seconds between."""

_COMMAND_S = 60


@dataclass(frozen=True)
class Shape:
    """The nodes that one task needs: how many, and the ranks of each, with a GPU each or on the CPU."""

    nodes: int
    ranks_per_node: int
    gpus: bool


def script(shape: Shape, tasks: int, command: Sequence[str], log: Path, site: Site) -> str:
    """Return a batch script for `tasks` array tasks; each runs `command` with its number on the first of its nodes.

    Nodes are asked for whole, with all their memory: what is measured while others run is not a measurement. What
    `site` leaves open is left to Slurm's own SBATCH_ variables. A task that is requeued appends to its log. ConfigError
    for a folder of the `log` whose name no script can hold; "%a" in the name of the file is the task's number.
    """
    gres = site.gres_of(shape.ranks_per_node if shape.gpus else 0)
    throttle = f"%{site.throttle}" if site.throttle else ""
    # SIGUSR1 to the launcher alone: it tells the ranks.
    warning = [f"--signal=B:USR1@{site.warning_s}"] if site.warning_s else []
    options = [
        "--job-name=ssfx",
        f"--array=0-{tasks - 1}{throttle}",
        f"--nodes={shape.nodes}",
        "--ntasks-per-node=1",
        *([gres] if gres else []),
        "--exclusive",
        "--requeue",
        *warning,
        *site.directives(),
    ]
    return _written(options, log, site, f'exec {shlex.join(command)} "$SLURM_ARRAY_TASK_ID"')


def later(command: Sequence[str], log: Path, after: Sequence[str], site: Site) -> str:
    """Return a batch script that runs `command` on one core when the jobs `after` are over, however they ended."""
    partly = [option for option in site.directives() if not option.startswith(("--time=", "--mem=", "--constraint="))]
    dependency = f"--dependency=afterany:{':'.join(after)}"
    return _written(
        ["--job-name=ssfx-figures", "--ntasks=1", dependency, *partly], log, site, f"exec {shlex.join(command)}"
    )


def _written(options: Sequence[str], log: Path, site: Site, line: str) -> str:
    if bad := sorted(set(str(log.parent)) & set('"\\\n\r')):
        raise ConfigError(f"Slurm cannot write logs below {str(log.parent)!r}, because of {bad[0]!r}; set SSFX_RESULTS")
    output = Path(str(log.parent).replace("%", "%%")) / log.name
    shell = "#!/bin/bash -l" if site.modules else "#!/bin/bash"  # only a login shell is sure to know `module`
    return "\n".join(
        [
            shell,
            *(f"#SBATCH {option}" for option in (*options, "--open-mode=append", f'--output="{output}"')),
            *(f"module load {shlex.quote(name)} || exit 1" for name in site.modules),
            *(f"export {name}={shlex.quote(value)}" for name, value in site.environment.items()),
            line,
            "",
        ]
    )


def missing() -> str:
    """Return why nothing can be submitted from here, "" when it can."""
    absent = [program for program in ("sbatch", "squeue") if shutil.which(program) is None]
    return f"{absent[0]} is not on the PATH" if absent else ""


def submit(path: Path) -> str:
    """Return the number of the job that Slurm made of the script at `path`; RunError with Slurm's own words."""
    return _said(["sbatch", "--parsable", str(path)]).partition(";")[0]


def cancel(jobs: Sequence[str]) -> None:
    """Slurm ends these jobs and tasks, and has forgotten those that wait; RunError with Slurm's own words."""
    if jobs:
        _said(["scancel", *jobs])


def requeue(job: str) -> None:
    """Slurm ends the task that is this job's number and puts it into the queue again; RunError with its own words."""
    _said(["scontrol", "requeue", job])


def ended_as(task: str) -> str:
    """Return how Slurm says that a task ended, as "TIMEOUT"; "" where it does not know any more, or is not asked."""
    if shutil.which("scontrol") is None:
        return ""
    try:
        words = _said(["scontrol", "show", "job", task]).split()
    except RunError:
        return ""
    state = next((word.partition("=")[2] for word in words if word.startswith("JobState=")), "")
    return "" if state in ("COMPLETED", "FAILED") else state  # these the log explains


def queued(tries: int = TRIES, pause_s: float = PAUSE_S, say: Callable[[str], None] | None = None) -> dict[str, str]:
    """Return why this user's array tasks wait, "" for those that run, by "job_task"; RunError when Slurm is silent.

    At the first silence `say` is called with what went wrong and the time until which Slurm is asked again.
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


MOST_TASKS = 1000
"""Tasks of one array; Slurm's own limit is 1001 unless a site has set another."""


@dataclass(frozen=True)
class Array:
    """An array that Slurm has not been given yet: one task for each case, in a folder that does not exist yet."""

    folder: Path
    shape: Shape
    cases: tuple[Case, ...]
    script: str


@dataclass(frozen=True)
class ArrayTask:
    """Where the run of a case is with Slurm."""

    task: str
    """"job_number"."""
    log: Path
    attempts: int
    """The last attempt at the run before it was submitted."""


@dataclass(frozen=True)
class Submitted:
    """An array that Slurm was given."""

    job: str
    experiment: str
    date: str
    tasks: Mapping[str, ArrayTask]
    """By run id."""


def arrays(cases: Iterable[Case], store: Store, site: Site) -> list[Array]:
    """Return the arrays that run `cases`: one for every shape of nodes, because the tasks of an array are all alike."""
    groups: dict[Shape, list[Case]] = {}
    for case in cases:
        cluster = cluster_on(case.cluster, case.world_size, case.device)
        shape = Shape(cluster.nodes, cluster.devices_per_node, case.device == "cuda")
        groups.setdefault(shape, []).append(case)
    found = []
    for shape, group in groups.items():
        for start in range(0, len(group), MOST_TASKS):
            part = tuple(group[start : start + MOST_TASKS])
            name = sha256("".join([now(), *(case.run_id for case in part)]).encode()).hexdigest()[:12]
            folder = slurm_folder(store) / name
            command = [sys.executable, "-m", "ssfx.lab.engines.allocation", str(folder / "sweep.json")]
            text = script(shape, len(part), command, folder / "task-%a.log", site)
            found.append(Array(folder, shape, part, text))
    return found


def submit_array(array: Array, store: Store, train: str, stall_timeout_s: float | None, site: Site) -> Submitted:
    """Return what Slurm made of the array; its folder holds all that its tasks, and a later command, need to know."""
    array.folder.mkdir(parents=True)
    sweep = {
        "root": str(store.runs.parent),
        "train": train,
        "stall_timeout_s": stall_timeout_s,
        "container": site.container,
        "cases": [asdict(case) for case in array.cases],
    }
    write_atomic(array.folder / "sweep.json", json.dumps(sweep))
    path = array.folder / "array.sh"
    write_atomic(path, array.script)
    attempts = [max(store.attempts(case), default=0) for case in array.cases]
    job, date, experiment = submit(path), now(), array.cases[0].experiment
    runs = list(zip((case.run_id for case in array.cases), attempts, strict=True))
    said = {"job": job, "experiment": experiment, "date": date, "runs": runs}
    write_atomic(array.folder / "submitted.json", json.dumps(said) + "\n")
    return _submitted(array.folder, said)


def submissions(store: Store) -> list[Submitted]:
    """Return all arrays that were ever submitted from this results folder, the latest last."""
    paths = slurm_folder(store).glob("*/submitted.json")
    return sorted((_submitted(path.parent, read_json(path)) for path in paths), key=lambda one: (one.date, one.job))


def latest_tasks(found: Sequence[Submitted]) -> dict[str, ArrayTask]:
    """Return where each run was submitted last, by run id."""
    return {run_id: task for one in found for run_id, task in one.tasks.items()}


@contextmanager
def submitting(store: Store) -> Iterator[None]:
    """Inside, no other command looks at what is submitted and submits the rest: no case is submitted twice."""
    lock = RunLock.take(slurm_folder(store), wait=True)
    assert lock is not None
    try:
        yield
    finally:
        lock.release()


def slurm_folder(store: Store) -> Path:
    """Return the folder of all arrays."""
    return store.runs.parent / "slurm"


def _submitted(folder: Path, said: Mapping[str, object]) -> Submitted:
    job, runs = str(said["job"]), said["runs"]
    assert isinstance(runs, list)
    tasks = {
        run_id: ArrayTask(f"{job}_{number}", folder / f"task-{number}.log", attempts)
        for number, (run_id, attempts) in enumerate(runs)
    }
    return Submitted(job, str(said["experiment"]), str(said["date"]), tasks)
