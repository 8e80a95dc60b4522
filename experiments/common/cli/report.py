"""`ssfx report`: every figure and every claim as one page for a browser."""

from pathlib import Path

import click

from experiments.common.figures.drawing import draw_all
from experiments.common.pages.report import write_report
from ssfx.core.files import check_writable
from ssfx.core.paths import results_dir
from ssfx.lab.results.store import Store


@click.command(short_help="Write every figure and every claim as one HTML page.")
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path),
    help="File to write; default: figures/report.html in the results folder.",
)  # fmt: skip
def report(out: Path | None) -> None:
    """Draw what has changed, and write one HTML page with every figure beside what its paper claims.

    The page needs no network: it can be mailed, or opened from a disk.
    """
    rows, unreadable = Store(results_dir()).readable()
    folder = results_dir() / "figures"
    path = out or folder / "report.html"
    check_writable(path.parent, "choose another file with --out")
    drawn = draw_all([], rows, folder, unreadable=unreadable, placeholders=True)
    for one in drawn:
        if one.state == "failed":
            click.secho(f"{one.name}: {one.said}", fg="red", err=True)
    again = write_report(rows, folder, path)
    click.echo(f"{path}: {path.stat().st_size / 1e6:.1f} MB, {len(drawn)} figures{'' if again else ', unchanged'}")
