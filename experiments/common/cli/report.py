"""`ssfx report`: every figure and every claim as one page for a browser."""

from pathlib import Path

import click

from experiments.common.claims.verdicts import PAPERS
from experiments.common.figures.discovery import chosen
from experiments.common.figures.drawing import Inputs, draw_all
from experiments.common.pages.report import write_report
from experiments.common.pages.reproduction import IMAGES
from ssfx.cli.terminal import say
from ssfx.core.files import check_writable
from ssfx.core.paths import results_dir
from ssfx.lab.results.manifest import changed
from ssfx.lab.results.store import Store


@click.command()
@click.argument("paper", required=False, type=click.Choice(list(PAPERS)))
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write; default: figures/report.html, or report.PAPER.html, in the results folder.",
)
def report(paper: str | None, out: Path | None) -> None:
    """Draw what your rows change, and write one HTML page with every figure beside what its paper claims.

    With PAPER the page is of that one alone. ssfx status --claims PAPER --table latex has its verdicts as a table.

    Figures of which you have no rows are those of docs/img, unless you changed the code; ssfx figures draws them all.
    The page needs no network: it can be mailed, or opened from a disk.
    """
    store = Store(results_dir())
    rows, unreadable = store.readable()
    folder = results_dir() / "figures"
    names = [paper] if paper else []
    path = out or folder / ("report.html" if paper is None else f"report.{paper}.html")
    check_writable(path.parent, "choose another file with --out")
    committed = IMAGES if changed("ssfx", "conf", "experiments", "results/reference") is False else None
    own, now = store.own_ids(), Inputs(placeholders=True)
    drawn = draw_all(
        names, rows, folder, unreadable=unreadable, placeholders=True, now=now, committed=committed, own=own
    )
    for one in drawn:
        if one.state == "failed":
            click.secho(f"{one.name}: {one.said}", fg="red", err=True)
    again = write_report(rows, folder, path, now, paper)
    taken = sum(one.state == "committed" for one in drawn)
    of = f", {taken} of them from docs/img" if taken else ""
    click.echo(f"{path}: {path.stat().st_size / 1e6:.1f} MB, {len(drawn)} figures{of}{'' if again else ', unchanged'}")
    cases, figures = {row.run_id: row.case for row in rows if row.run_id in own}, chosen([])
    if other := [case for case in cases.values() if not any(figure.shows(case) for figure in figures)]:
        say(
            f"{len(other)} of your {len(own)} runs are of no figure: ssfx show RUN RUN sets two side by side, and "
            "docs/thesis.md has a figure of one's own"
        )
