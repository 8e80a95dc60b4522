"""`ssfx figures`: every figure and table, rebuilt from rows."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

from experiments.common.figures.discovery import chosen, discover
from experiments.common.figures.drawing import Drawn, check_all, draw_all
from ssfx.cli.completion import own_components
from ssfx.cli.terminal import say
from ssfx.core.errors import ConfigError, RunError
from ssfx.core.paths import results_dir
from ssfx.lab.results.store import Store


def _figures(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in discover() if name.startswith(incomplete)]


@click.command()
@click.argument("names", nargs=-1, shell_complete=_figures)
@click.option(
    "--out", type=click.Path(path_type=Path), help="Folder to write to; default: figures in the results folder."
)
@own_components
@click.option("--check", is_flag=True, help="Draw nothing; fail if a figure in the folder is not what the rows give.")
@click.option("--latex", is_flag=True, help="Print the numbers of the named figures as tables for LaTeX.")
@click.option("--json", "as_json", is_flag=True, help="Print what became of every figure as one JSON object.")
def figures(names: tuple[str, ...], out: Path | None, check: bool, latex: bool, as_json: bool) -> None:
    """Draw figures, all or the named ones, from the rows of finished runs and of the reference.

    Names are like ssfusion.fig11, fig11 where one paper alone has it, or ssfusion for all of a paper. FILE.py is one
    of your own. What has not changed is not drawn again. Fails if a figure's rows cannot be used, or a named one has
    none.
    """
    if latex and (not names or check or as_json):
        raise ConfigError("--latex prints tables alone; name figures, as ssfusion.table2, and drop --check and --json")
    figures = chosen(names)
    rows, unreadable = Store(results_dir()).readable(lambda experiment: any(one.reads(experiment) for one in figures))
    folder = out or results_dir() / "figures"
    if check:
        if unreadable:
            raise RunError(unreadable[0].message)
        paths = check_all(names, rows, folder)
        if as_json:
            click.echo(json.dumps({"folder": str(folder), "checked": list(map(str, paths))}))
        else:
            click.echo(f"{len(paths)} figures in {folder} are what the rows give")
        return
    drawn = draw_all(names, rows, folder, unreadable=unreadable, placeholders=True)
    if latex:
        import pandas as pd

        titles = {one.name: one.title for one in figures}
        for table in (path for one in drawn for path in one.files if path.suffix == ".csv"):
            read = pd.read_csv(table, dtype=str, keep_default_na=False)
            caption = titles[table.stem].replace("_", r"\_").replace("%", r"\%")
            click.echo(read.to_latex(index=False, escape=True, caption=caption, label=f"tab:{table.stem}"))
    elif as_json:
        _plain(drawn, folder)
    else:
        _tell(drawn, folder)
    listed = {one.said for one in drawn}
    for one in unreadable:
        if one.message not in listed:
            click.secho(f"unreadable: {one.message}", fg="red", err=True)
    failed = [one for one in drawn if one.state == "failed" or (names and one.state == "missing")]
    if failed or unreadable:
        raise RunError(f"{len(failed)} figures failed; {len(unreadable)} rows cannot be read")


def _plain(drawn: Sequence[Drawn], folder: Path) -> None:
    """Print the state of every figure, its files, and why it has none or only a placeholder."""
    found = [
        {"name": one.name, "state": one.state, "files": list(map(str, one.files)), "said": one.said} for one in drawn
    ]
    click.echo(json.dumps({"folder": str(folder), "figures": found}))


def _tell(drawn: Sequence[Drawn], folder: Path) -> None:
    """Print what was drawn, then the figures that were not, each with its reason."""
    for one in drawn:
        if one.state == "drawn":
            click.echo(f"{one.files[0]}")
        for line in one.said.splitlines() if one.state in ("drawn", "unchanged") else ():
            say(f"{one.name} lacks {line}", "    ", "")
    for one in drawn:
        if one.state == "missing":
            click.echo(f"{one.name}: no rows yet: {one.said}")
    for one in drawn:
        if one.state == "failed":
            click.secho(f"{one.name}: {one.said}", fg="red", err=True)
    counts = Counter(one.state for one in drawn)
    states = ", ".join(f"{counts[state]} {state}" for state in ("drawn", "unchanged", "missing", "failed"))
    click.secho(f"{states}; each is a PNG, PDF, SVG and CSV in {folder}", bold=True)
