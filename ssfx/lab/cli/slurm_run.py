"""What `ssfx run engine=slurm` says before it submits anything, and what it does when it shall not wait."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ssfx.core.case import Case
    from ssfx.core.slurm_site import Site
    from ssfx.lab.config.cases import Job
    from ssfx.lab.engines.slurm import Slurm
    from ssfx.lab.results.store import Store


def slurm_engine(job: Job) -> Slurm:
    """Return the engine as the job's cluster.slurm.* keys want it."""
    from ssfx.lab.engines import engines
    from ssfx.lab.engines.slurm import Slurm

    engine = engines["slurm"]
    assert isinstance(engine, Slurm)
    return engine.asking(job.site)


def node_hours(cases: Iterable[Case], site: Site) -> str:
    """Return what the runs may cost at most: exactly where there is a time limit, else for two lengths of a run."""
    from ssfx.perf_model.cluster_file import cluster_on

    counts = Counter((case.cluster, case.world_size, case.device) for case in cases)
    nodes = {key: cluster_on(*key).nodes for key in counts}
    runs, total = counts.total(), sum(nodes[key] * count for key, count in counts.items())
    each = "/".join(str(count) for count in sorted(set(nodes.values())))
    limit_s = site.limit_s()
    if limit_s is not None:
        hours = total * limit_s / 3600
        return f"{runs} runs x {each} exclusive nodes x {limit_s / 60:g} min: at most {hours:g} node-hours"
    return (
        f"{runs} runs x {each} exclusive nodes: {total} node-hours if a run takes an hour, {total / 12:.3g} if five "
        "minutes; cluster.slurm.time_limit=MINUTES sets a limit"
    )


def print_scripts(job: Job, cases: Iterable[Case], store: Store) -> None:
    """Print every script that would be given to sbatch."""
    for array in slurm_engine(job).planned(list(cases), store):
        click.secho(f"\n{array.folder / 'array.sh'}: {len(array.cases)} task(s)", bold=True)
        click.echo(array.script, nl=False)
    click.echo("\nnothing was submitted; the same command without --print does it")


def submit_and_leave(job: Job, cases: Iterable[Case], figures: Iterable[str], store: Store) -> None:
    """Submit what Slurm has not, and a job that draws `figures` when all of it is over; say how to go on."""
    from ssfx.core.files import write_atomic
    from ssfx.lab.engines.sbatch import later, submit
    from ssfx.lab.engines.submission import slurm_folder

    new = slurm_engine(job).submit(list(cases), store, job.stall_timeout_s)
    if new and (names := list(figures)):
        folder = slurm_folder(store)
        root = f"SSFX_RESULTS={store.runs.parent}"
        command = ["env", root, sys.executable, "-m", "ssfx.cli", "figures", *names]
        path = folder / f"figures-{new[0]}.sh"
        write_atomic(path, later(command, path.with_suffix(".log"), new, job.site))
        click.echo(f"job {submit(path)} draws {', '.join(names)} afterwards; its log: {path.with_suffix('.log')}")
    click.echo(f"ssfx status --watch shows how far they are; ssfx cancel {job.experiment} ends them")
