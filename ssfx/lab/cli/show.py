"""`ssfx show`: one run (its case, where its time went, its plan, its files), or several side by side."""

import json
from pathlib import Path

import click

from ssfx.cli.terminal import print_table, say
from ssfx.core.errors import ConfigError, some_of
from ssfx.core.files import read
from ssfx.core.paths import results_dir
from ssfx.core.rows import METRICS, Row
from ssfx.lab.cli.beside import show_beside
from ssfx.lab.cli.overlay import write_overlay
from ssfx.lab.results.store import Store
from ssfx.planning.plan import Plan
from ssfx.schemes import schemes

_PARTS = ("forward_s", "backward_s", "sparsify_s", "exposed_comm_s", "step_s", "other_s")


def found_run(run: str) -> Row:
    """Return the row of the only finished run whose id is `run` or begins with it; else ConfigError."""
    store = Store(results_dir())
    found = {row.run_id: row for row in reversed(store.beginning(run))}
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        said = some_of([f"{one.run_id} ({one.case.label})" for one in found.values()])
        raise ConfigError(f"{len(found)} finished runs have an id that begins with {run}: {said}")
    if run.endswith((".json", ".json.gz")):
        raise ConfigError(f"{run} is a file, not a run; a trace of torch.profiler is read by ssfx profile trace={run}")
    own = sorted(store.rows(), key=lambda row: row.origin.date, reverse=True)
    newest = some_of([f"{one.run_id} ({one.case.label})" for one in own[:3]])
    raise ConfigError(
        f"no finished run has an id that begins with {run}; "
        + (f"the newest here are {newest}, ssfx status shows all" if own else "nothing has run here: ssfx run")
    )


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="RUN|SCHEME... [KEY=VALUE]...")
@click.option("--json", "as_json", is_flag=True, help="Print the row of RUN as one JSON object.")
@click.option("--trace", is_flag=True, help="Write a step of RUN over its simulation as a Chrome trace.")
@click.option("--step", type=click.IntRange(min=0), help="The step to trace; else the timed one nearest their median.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="The trace; else the run's overlay.json.")
@click.option("--wide", is_flag=True, help="Do not fit tables to the terminal.")
def show(words: tuple[str, ...], as_json: bool, trace: bool, step: int | None, out: Path | None, wide: bool) -> None:
    """Show the finished run whose id is RUN or begins with it; ssfx run --dry-run and ssfx status print ids.

    Of several runs, or of schemes: a table for each setting, with dense DDP where that was run. KEY=VALUE narrows the
    settings: model=, dataset=, cluster=, world_size=, batch_size=, density=, precision=, experiment=.

    For example: ssfx show ssfusion_oi ddp model=bert_large cluster=64gpu
    """
    if (step is not None or out) and not trace:
        raise ConfigError("--step and --out are of a trace; add --trace")
    if len(words) > 1 or "=" in words[0] or words[0] in schemes:
        if as_json or trace:
            raise ConfigError(f"{'--trace' if trace else '--json'} is of one run; name it by its id alone")
        show_beside(words, wide)
        return
    row = found_run(words[0])
    if trace:
        write_overlay(row, out, step)
    elif as_json:
        click.echo(row.to_json())
    else:
        _show_run(row)


def _show_run(row: Row) -> None:
    run_id, case, metrics = row.run_id, row.case, row.metrics
    say(f"{run_id}  {case.label}", bold=True)
    say(f"{row.kind} on {row.origin.hardware}, {row.origin.date}; commit {_commit(row)}", "  ", "")
    shown = {name: value for name, value in json.loads(case.to_json()).items() if value not in (None, "", False, {}, 0)}
    say("case: " + " ".join(f"{name}={value}" for name, value in sorted(shown.items())), "  ", "")
    total_s = metrics.get("iteration_s") or 0.0
    lines = [
        (METRICS[name], f"{1e3 * value:.3f}", f"{value / total_s:.1%}")
        for name in _PARTS
        if total_s and (value := metrics.get(name)) is not None
    ]
    print_table(
        ("part of an iteration", "ms", "share"),
        [*lines, ("iteration", f"{1e3 * total_s:.3f}", "")],
        right={"ms", "share"},
    )
    others = [name for name, value in metrics.items() if name not in (*_PARTS, "iteration_s") and value is not None]
    print_table(("also", "value", "what"), [(name, f"{metrics[name]:.6g}", METRICS[name]) for name in others])
    folder = Store(results_dir()).runs / run_id
    attempts = sorted(folder.glob("attempt-*"))
    if attempts:
        _say_plan(attempts[-1] / "plan.json")
        click.echo(f"files: {attempts[-1]}")
        for path in sorted(attempts[-1].iterdir()):
            click.echo(f"  {path.name}")
    else:
        click.echo("files: none here, the row came with ssfx")


def _say_plan(path: Path) -> None:
    """Print what the plan in use at the end sent, and why it was chosen."""
    if not path.exists():
        return
    plan = read(path, Plan.from_json)
    lanes = [lane for _, lane in plan.lanes()]
    ways = {f"{one.compressor or 'dense'} by {lane.collective}" for lane in lanes for one in lane.segments}
    say(f"plan {plan.digest}: {len(plan.launch_order)} messages; {', '.join(sorted(ways))}", "  ", "")
    for note, text in plan.notes:
        say(f"{note}: {text}", "  ", "")


def _commit(row: Row) -> str:
    code = row.manifest.get("code") or {}
    return f"{str(code.get('commit') or 'unknown')[:12]}{' with changes' if code.get('dirty') else ''}"
