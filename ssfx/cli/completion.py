"""Tab completion of verbs, keys and values; imports neither Hydra nor torch."""

import os
from typing import Any

import click
from click.shell_completion import BashComplete, add_completion_class

from ssfx.core.plugins import add_plugin


def _override(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    # Imported here, so that a command that completes nothing does not pay for it.
    from ssfx.cli.overrides import complete

    given = [str(word) for word in ctx.params.get(param.name or "") or ()]
    return complete(given, incomplete)


def _config_dir(_ctx: click.Context, _param: click.Parameter, folders: tuple[str, ...]) -> None:
    if folders:
        kept = os.environ.get("SSFX_CONF")
        os.environ["SSFX_CONF"] = os.pathsep.join([*folders, kept] if kept else folders)


def _plugin(_ctx: click.Context, _param: click.Parameter, names: tuple[str, ...]) -> None:
    for name in names:
        add_plugin(name)


def own_components(command: Any) -> Any:
    """Give a command the options that name the user's own folders and modules."""
    command = click.option(
        "--plugin",
        metavar="MODULE",
        multiple=True,
        callback=_plugin,
        expose_value=False,
        is_eager=True,
        help="Import a module or .py file that registers components; may be given several times.",
    )(command)
    return click.option(
        "--config-dir",
        metavar="DIR",
        multiple=True,
        callback=_config_dir,
        expose_value=False,
        is_eager=True,
        help="A folder like conf/ with files of your own, before the shipped ones.",
    )(command)


def overrides_argument(command: Any) -> Any:
    """Give a command its KEY=VALUE words, and the options that say where more of them are described."""
    words = click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...", shell_complete=_override)
    return words(own_components(command))


def install_bash() -> None:
    """Bash adds no space after a completed "key=", where a value follows."""
    add_completion_class(_BashWithoutSpace)


class _BashWithoutSpace(BashComplete):
    source_template = BashComplete.source_template.replace(
        "COMPREPLY+=($value)", "COMPREPLY+=($value); [[ $value == *= ]] && compopt -o nospace 2>/dev/null"
    )
