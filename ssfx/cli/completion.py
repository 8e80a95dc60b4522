"""Tab completion of verbs, keys and values; imports neither Hydra nor torch."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, add_completion_class


def _override(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    # Imported here, so that a command that completes nothing does not pay for it.
    from ssfx.cli.words import complete

    given = [str(word) for word in ctx.params.get(param.name or "") or ()]
    return complete(given, incomplete)


overrides_argument = click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...", shell_complete=_override)


def install_bash() -> None:
    """Bash adds no space after a completed "key=", where a value follows."""
    add_completion_class(_BashWithoutSpace)


class _BashWithoutSpace(BashComplete):
    source_template = BashComplete.source_template.replace(
        "COMPREPLY+=($value)", "COMPREPLY+=($value); [[ $value == *= ]] && compopt -o nospace 2>/dev/null"
    )
