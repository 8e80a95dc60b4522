"""`ssfx figures`: every figure and table, rebuilt from rows."""

from __future__ import annotations

from pathlib import Path

import click


def _figures(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    from ssfx.figures.discovery import discover

    return [name for name in discover() if name.startswith(incomplete)]


@click.command(short_help="Draw figures from the rows of runs.")
@click.argument("names", nargs=-1, shell_complete=_figures)
@click.option(
    "--out", type=click.Path(path_type=Path), help="Folder to write to; default: figures in the results folder."
)
@click.option("--check", is_flag=True, help="Draw nothing; fail if a figure in the folder is not what the rows give.")
def figures(names: tuple[str, ...], out: Path | None, check: bool) -> None:
    """Draw figures, all or the named ones, from the rows of finished runs and of the reference."""
    from ssfx.core.paths import results_dir
    from ssfx.figures.discovery import check_all, draw_all
    from ssfx.results.store import Store

    store = Store(results_dir())
    rows = [*store.reference_rows(), *store.rows()]
    folder = out or results_dir() / "figures"
    if check:
        for path in check_all(names, rows, folder):
            click.echo(f"{path}: as the rows give it")
        return
    folder.mkdir(parents=True, exist_ok=True)
    for path in draw_all(names, rows, folder):
        click.echo(str(path))
