"""Text for a terminal: tables and sentences fit its width; a pipe or a file gets whole lines without colour."""

import shutil
import sys
import textwrap
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import click

_LEAST = 12
"""Characters that a column keeps however narrow the terminal is."""


def columns(wide: bool = False) -> int | None:
    """Return how many characters a line may have: those of the terminal; None where there is none, and for --wide."""
    if wide or sys.stdout is None or not sys.stdout.isatty():
        return None
    return shutil.get_terminal_size((100, 24)).columns


def say(text: str, indent: str = "", first: str | None = None, **style: object) -> None:
    """Print a sentence, wrapped at the terminal's width: `first` before the first line, `indent` before the others."""
    limit, start = columns(), indent if first is None else first
    lines = [start + text]
    if limit is not None:
        lines = textwrap.wrap(text, limit, initial_indent=start, subsequent_indent=indent, break_on_hyphens=False)
    for line in lines or [start.rstrip()]:
        click.secho(line, **style)  # type: ignore[arg-type]


def print_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[str] = (), wide: bool = False
) -> None:
    """Print `header` in bold and `rows` of as many cells; columns named in `right` are aligned to the right.

    Where the table is wider than the terminal, the widest of the other columns wrap inside themselves.
    """
    lines = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    limit = columns(wide)
    loose = [i for i, name in enumerate(header) if name not in right]
    while limit is not None and sum(widths) + 2 * (len(widths) - 1) > limit:
        widest = max(loose, key=lambda i: widths[i], default=None)
        if widest is None or widths[widest] <= _LEAST:
            break
        widths[widest] -= 1
    for number, line in enumerate(lines):
        cells = [
            textwrap.wrap(cell, max(1, width), break_on_hyphens=False) or [""]
            for cell, width in zip(line, widths, strict=True)
        ]
        for depth in range(max(map(len, cells))):
            parts = [cell[depth] if depth < len(cell) else "" for cell in cells]
            aligned = [
                part.rjust(width) if name in right else part.ljust(width)
                for name, part, width in zip(header, parts, widths, strict=True)
            ]
            click.secho("  ".join(aligned).rstrip(), bold=number == 0)


def picked(of: object, names: str) -> dict[str, Any]:
    """Return attributes by name, for JSON; "more_steps=share" gives one another name."""
    pairs = (name.split("=") for name in names.split())
    return {pair[0]: getattr(of, pair[-1]) for pair in pairs}
