"""Tables as aligned plain text: the same in a terminal, a pipe and a file, and no import that a short command pays."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import click


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[str] = ()) -> None:
    """Print `header` in bold and `rows` of as many cells; columns named in `right` are aligned to the right."""
    lines = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for number, line in enumerate(lines):
        cells = [
            cell.rjust(width) if name in right else cell.ljust(width)
            for name, cell, width in zip(header, line, widths, strict=True)
        ]
        click.secho("  ".join(cells).rstrip(), bold=number == 0)
