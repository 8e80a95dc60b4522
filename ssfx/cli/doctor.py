"""`ssfx doctor`: what is installed and here, and what therefore runs."""

from __future__ import annotations

import click


@click.command(short_help="Show what is here, and what would run.")
def doctor() -> None:
    """Show versions, hardware, backends and data sets, and what would run here."""
    from rich.table import Table

    from ssfx.cli.console import wide_console
    from ssfx.doctor import examine

    console = wide_console()
    found = examine()
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, text in found.facts:
        table.add_row(name, text)
    console.print(table)
    for check in found.checks:
        mark, style = ("runs", "green") if check.runs else ("does not run", "red")
        console.print(f"{check.what}: {mark}{f', {check.why}' if check.why else ''}", style=style, markup=False)
    if not all(check.runs for check in found.checks if check.required):
        raise click.exceptions.Exit(1)
