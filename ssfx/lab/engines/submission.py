"""Arrays of Slurm tasks on disk: what each is to run, and under which number Slurm has it.

Below results/slurm/ every array has a folder: array.sh, sweep.json (what its tasks read), submitted.json (written when
Slurm has taken it), and the tasks' logs.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from ssfx.core.case import Case
from ssfx.core.files import read_json, write_atomic
from ssfx.core.slurm_site import Site
from ssfx.lab.engines.sbatch import Shape, script, submit
from ssfx.lab.results.manifest import now
from ssfx.lab.results.run_lock import RunLock
from ssfx.lab.results.store import Store
from ssfx.perf_model.cluster_file import cluster_on

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
        "root": str(store.runs.parent), "train": train, "stall_timeout_s": stall_timeout_s,
        "container": site.container, "cases": [asdict(case) for case in array.cases],
    }  # fmt: skip
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
