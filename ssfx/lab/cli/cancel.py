"""`ssfx cancel`: end what Slurm has of an experiment."""

import click

from ssfx.core.errors import ConfigError, unknown
from ssfx.core.paths import results_dir
from ssfx.lab.engines.submission import cancel as end
from ssfx.lab.engines.submission import queued, submissions
from ssfx.lab.results.store import Store


@click.command()
@click.argument("experiments", metavar="EXPERIMENT...", nargs=-1, required=True)
def cancel(experiments: tuple[str, ...]) -> None:
    """End the tasks of EXPERIMENT that Slurm has, running or waiting, that were submitted to this results folder.

    Rows of finished runs stay, and the same ssfx run submits the rest again.
    """
    found = submissions(Store(results_dir()))
    known = sorted({one.experiment for one in found})
    names = {name.removeprefix("experiment=") for name in experiments}
    for name in sorted(names - set(known)):
        if not known:
            raise ConfigError(f"nothing was submitted to Slurm from {results_dir()}, so {name} cannot be cancelled")
        raise unknown("experiment that was submitted to Slurm", name, known)
    queue = queued(tries=1)
    tasks = {
        one.job: [task.task for task in one.tasks.values() if task.task in queue]
        for one in found
        if one.experiment in names
    }
    jobs = [job for job, left in tasks.items() if left]
    end(jobs)
    count = sum(map(len, tasks.values()))
    what = f"{count} task(s) of job(s) {' '.join(jobs)} ended" if jobs else "no task is left in Slurm's queue"
    click.echo(f"{', '.join(sorted(names))}: {what}; finished runs are kept")
