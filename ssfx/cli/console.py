"""The console that tables are printed on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH = 120


def wide_console() -> Console:
    """Return a console that wraps no sentence, as wide as the terminal, or PIPE_WIDTH columns in a pipe or file."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    return console
