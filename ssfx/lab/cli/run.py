"""`ssfx run`: from key=value words to finished rows and figures."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ssfx.cli.completion import overrides_argument
from ssfx.cli.terminal import say
from ssfx.core.errors import ConfigError, RunError
from ssfx.core.files import write_atomic
from ssfx.core.paths import results_dir
from ssfx.core.plugins import provided
from ssfx.core.user_code import is_own, own_code
from ssfx.lab.cli.outcome import plain_outcome, print_outcome
from ssfx.lab.config.plans import check_plans, check_simulations, without_room
from ssfx.lab.engines import engines
from ssfx.lab.engines.failure import RunsFailed
from ssfx.lab.engines.slurm import Slurm, check_here
from ssfx.lab.engines.submission import later, slurm_folder, submit
from ssfx.lab.results.store import Store
from ssfx.lab.results.wandb_mirror import FILES, mirror
from ssfx.perf_model.cluster_file import cluster_on
from ssfx.perf_model.recorded_times import measured_on

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ssfx.core.case import Case
    from ssfx.core.slurm_site import Site
    from ssfx.lab.config.cases import Job
    from ssfx.perf_model.target import Target


@click.command()
@overrides_argument
@click.option("--dry-run", is_flag=True, help="Check and list the cases; start nothing.")
@click.option(
    "--cfg", type=click.Choice(["job", "all"]), help="Print the complete configuration of the first or of every case."
)
@click.option(
    "-m",
    "--multirun",
    is_flag=True,
    expose_value=False,
    help="As in Hydra; a comma list is a sweep anyway.",
)
@click.option("--only-failed", is_flag=True, help="Run those whose last attempt failed, and no other.")
@click.option("--fail-fast", is_flag=True, help="End all runs as soon as one fails.")
@click.option("--print", "printed", is_flag=True, help="engine=slurm: print the scripts; submit nothing.")
@click.option("--no-wait", is_flag=True, help="engine=slurm: submit, also a job for the figures; return.")
@click.option("--json", "as_json", is_flag=True, help="Print cases, comparisons and figures as JSON.")
def run(
    overrides: tuple[str, ...],
    dry_run: bool,
    cfg: str | None,
    only_failed: bool,
    fail_fast: bool,
    printed: bool,
    no_wait: bool,
    as_json: bool,
) -> None:
    """Run the cases that KEY=VALUE words describe, skip finished ones, draw the figures.

    A comma list runs every value: scheme=ddp,ssfusion_oi seed=0,1.
    """
    from ssfx.lab.config.cases import resolve_job

    if cfg and as_json:
        raise ConfigError("--cfg prints YAML, which is no JSON; drop --cfg or --json")
    job = resolve_job(overrides)
    if cfg:
        _print_configs(job, every=cfg == "all")
        return
    store = Store(results_dir())
    for flag, given in (("--print", printed), ("--no-wait", no_wait)):
        if given and job.engine != "slurm":
            raise ConfigError(
                f"{flag} is for what is submitted to Slurm, and these runs have engine={job.engine}; drop it"
            )
    work = partial(
        _work,
        job,
        store,
        dry_run=dry_run,
        only_failed=only_failed,
        fail_fast=fail_fast,
        printed=printed,
        no_wait=no_wait,
    )
    if not as_json:
        work()
        return
    failure: RunError | None = None
    drawn: list[Path] = []
    with redirect_stdout(sys.stderr):  # what is for people
        try:
            drawn = work()
        except RunError as error:
            failure = error
    click.echo(json.dumps(_plain(job, store, drawn)))
    if failure is not None:
        raise failure


def _work(
    job: Job, store: Store, *, dry_run: bool, only_failed: bool, fail_fast: bool, printed: bool, no_wait: bool
) -> list[Path]:
    """Run what is missing, print how it came out, and return the figures that were drawn; or only list the cases."""
    states = {case.run_id: store.status(case) for case in job.cases}
    wanted = ("failed",) if only_failed else ("failed", "half", "new")
    todo = [case for case in job.cases if states[case.run_id] in wanted]
    if job.engine == "slurm" and todo and not (printed or dry_run):
        check_here()  # planning takes minutes
    if job.engine not in ("simulate", "virtual"):
        # What only lists or prints answers at once; plans that take a search are checked when runs start.
        check_plans(job.cases, job.cluster, searched=not (printed or dry_run))
    counts = Counter(states.values())
    failed = f", {counts['failed']} failed" if counts["failed"] else ""
    click.echo(f"{_how(job)}: {len(job.cases)} runs, {counts['finished']} finished{failed}, {len(todo)} to do")
    _explain(job, todo)
    for name in sorted({case.dataset for case in job.cases if states[case.run_id] == "finished"}):
        if is_own(name) and "files" not in (code := own_code(name)).says:
            said = f'{code.function}.files = ["table.csv"]'
            say(f"finished runs stay when what {code.path.name} reads changes, unless it says {said}", fg="yellow")
    for line in without_room(todo, job.cluster) if job.engine not in ("simulate", "virtual") else ():
        say(f"beware: {line}", fg="yellow")
    if printed:
        print_scripts(job, todo, store)
        return []
    if job.engine == "virtual" or (dry_run and job.engine == "simulate"):
        check_simulations(todo)
    if dry_run:
        for case in job.cases:
            click.echo(f"{case.run_id}  {states[case.run_id]:8}  {case.label}  seed {case.seed} repeat {case.repeat}")
        return []
    if no_wait:
        submit_and_leave(job, todo, [figure.name for figure in _figures(job)], store)
        return []
    failure: RunError | None = None
    if todo:
        import psutil  # noqa: F401 - the launcher needs it, and a run that was started would be a failed one

        try:
            # All cases: those that are finished are read, and said to be.
            cases = todo if only_failed else job.cases
            engine = slurm_engine(job) if job.engine == "slurm" else engines[job.engine]
            engine.run(cases, store, stall_timeout_s=job.stall_timeout_s, jobs=job.jobs, fail_fast=fail_fast)
        except RunError as error:
            failure = error  # said last, after what the other runs gave
        finally:
            # After the last run, so that no upload disturbs a measurement; also when one failed, as none is run twice.
            _mirror(job, todo, store)
    found = [row for case in job.cases if (row := store.row(case)) is not None]
    drawn: list[Path] = []
    if found or failure is None:
        print_outcome(found)
        click.echo()
        drawn = _draw(job, store)
        for path in drawn:
            if path.suffix == ".png":
                click.echo(f"figure: {path}")
    if failure is not None:
        _list_failed(failure, len(todo))
        raise failure
    return drawn


def _list_failed(failure: RunError, runs: int) -> None:
    """Print the reason of each of several failed runs, and how to repeat them."""
    if not isinstance(failure, RunsFailed):
        return
    failures = failure.failures
    if len(failures) > 1:
        click.secho(f"{len(failures)} of {runs} runs failed:", fg="red", err=True)
        for reason in failures.values():
            click.echo(f"  {reason}", err=True)
    click.echo("to repeat what failed and nothing else: the same command with --only-failed", err=True)


def _mirror(job: Job, cases: Sequence[Case], store: Store) -> None:
    """Copy the rows of `cases` to Weights & Biases, if that was asked for."""
    rows = [row for case in cases if (row := store.row(case)) is not None] if job.wandb.mode != "off" else []
    copied = sum([mirror(row, job.wandb, store.attempt_files(row.case, FILES)) for row in rows])
    if rows:
        click.echo(f"{copied} of {len(rows)} rows mirrored to W&B ({job.wandb.mode}): {job.wandb.folder}/wandb")


def _plain(job: Job, store: Store, drawn: Sequence[Path]) -> dict[str, Any]:
    """Return the cases, what their rows say beside dense, and the files of figures, as what JSON can hold."""
    cases = [
        {
            "run_id": case.run_id,
            "status": store.status(case),
            "model": case.model,
            "scheme": case.scheme,
            "cluster": str(case.cluster),
            "world_size": case.world_size,
            "compressor": case.compressor,
            "density": case.density,
            "seed": case.seed,
            "repeat": case.repeat,
        }
        for case in job.cases
    ]
    rows = [row for case in job.cases if (row := store.row(case)) is not None]
    return {
        "experiment": job.experiment,
        "engine": job.engine,
        "cases": cases,
        "comparisons": plain_outcome(rows),
        "figures": list(map(str, drawn)),
    }


def _print_configs(job: Job, every: bool) -> None:
    """Print the configuration of the first case, or of all of them as YAML documents, as composed and resolved."""
    import yaml

    for case, config in list(zip(job.cases, job.configs, strict=True))[: None if every else 1]:
        click.echo(f"{'---' + chr(10) if every else ''}# {case.run_id} {case.label} repeat {case.repeat}")
        click.echo(yaml.safe_dump(dict(config), sort_keys=False, width=100), nl=False)


def _how(job: Job) -> str:
    """Return how the rows are obtained: their kind, and where, or what a simulation rests on."""
    kind = engines[job.engine].kind
    if not job.targets:
        return f"{kind} on {'nodes that Slurm gives' if job.engine == 'slurm' else 'this machine'}"
    costs = sorted({target.system.origin.kind for target in job.targets})
    profiles = sorted({target.profile.origin.kind for target in job.targets})
    return f"{kind} ({'/'.join(costs)} costs, {'/'.join(profiles)} profiles)"


def _rests_on(target: Target) -> str:
    costs = target.system.origin
    return f"{target.cluster.name}: {costs.kind}{measured_on(costs)}. {costs.note}"


def _explain(job: Job, todo: Sequence[Case]) -> None:
    """Say what the summary line cannot: the preset or the clusters, and what compressor and density apply to."""
    if job.targets:
        if job.engine == "virtual":
            ranks = "/".join(sorted({str(case.trained_ranks) for case in job.cases}, key=int))
            where = " and ".join(sorted({case.virtual for case in job.cases}))
            what = f"preset={job.preset}: {ranks} ranks take turns in one process ({where}), times are simulated"
        else:
            what = "one step in virtual time, nothing is trained"
        say(f"experiment={job.experiment} engine={job.engine}: {what}")
        whole = [target for target in job.targets if target.cluster.world_size > 1] or job.targets
        for text in dict.fromkeys(map(_rests_on, whole)):
            say(text)
    else:
        say(f"experiment={job.experiment} preset={job.preset} engine={job.engine} world_size={job.cluster.world_size}")
    if job.engine == "slurm" and todo:
        say(node_hours(todo, job.site))
    if any(case.dataset.startswith("synthetic(") for case in job.cases):
        say("dataset=synthetic: random samples of the models' shapes, to measure throughput; nothing is learned")
    sparse = sorted({case.scheme for case in job.cases} - set(job.baselines))
    if job.baselines:
        say(f"compressor, density and memory apply to {', '.join(sparse)}; dense: {', '.join(job.baselines)}")
    if job.without_density:
        others = sorted({case.compressor for case in job.cases if case.compressor and case.density is not None})
        say(f"density applies to {', '.join(others)}; every element is sent: {', '.join(job.without_density)}")


def _figures(job: Job) -> list[Any]:
    """Return the figures that show any of the job's cases; none where the papers' part is not installed."""
    figures_of = provided("ssfx.hooks", "figures_of")
    return [] if figures_of is None else list(figures_of(job.cases))


def _draw(job: Job, store: Store) -> list[Path]:
    figures = _figures(job)
    if other := [case for case in job.cases if not any(figure.shows(case) for figure in figures)]:
        schemes = " ".join(dict.fromkeys(case.scheme for case in other))
        say(
            f"no figure shows {len(other)} of the runs ({store.runs} has their rows); ssfx show {schemes} compares them"
        )
    if not figures:
        return []
    rows, unreadable = store.readable(lambda experiment: any(figure.reads(experiment) for figure in figures))
    names, folder = [one.name for one in figures], results_dir() / "figures"
    drawn = provided("ssfx.hooks", "draw")(names, rows, folder, unreadable=unreadable)
    for one in drawn:
        if one.state == "failed":
            click.secho(f"{one.name}: {one.said}", fg="red", err=True)
    return [path for one in drawn for path in one.files]


def slurm_engine(job: Job) -> Slurm:
    """Return the engine as the job's cluster.slurm.* keys want it."""
    engine = engines["slurm"]
    assert isinstance(engine, Slurm)
    return replace(engine, site=job.site)


def node_hours(cases: Iterable[Case], site: Site) -> str:
    """Return what the runs may cost at most: exactly where there is a time limit, else for two lengths of a run."""
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
    new = slurm_engine(job).submit(list(cases), store, job.stall_timeout_s)
    if new and (names := list(figures)):
        folder = slurm_folder(store)
        root = f"SSFX_RESULTS={store.runs.parent}"
        command = ["env", root, sys.executable, "-m", "ssfx.cli", "figures", *names]
        path = folder / f"figures-{new[0]}.sh"
        write_atomic(path, later(command, path.with_suffix(".log"), new, job.site))
        click.echo(f"job {submit(path)} draws {', '.join(names)} afterwards; its log: {path.with_suffix('.log')}")
    click.echo(f"ssfx status --watch shows how far they are; ssfx cancel {job.experiment} ends them")
