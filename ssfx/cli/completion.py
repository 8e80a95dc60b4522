"""Tab completion of verbs, keys and values: what fits what stands before. Imports neither Hydra nor torch."""

from __future__ import annotations

import os
from typing import Any

import click
from click.shell_completion import BashComplete, add_completion_class

from ssfx.config.groups import GROUPS, OPTION_GROUPS, choices, options
from ssfx.config.schema import KEYS, TYPES, word_choices
from ssfx.core.plugins import add_plugin


def _override(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
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
        "--plugin", metavar="MODULE", multiple=True, callback=_plugin, expose_value=False, is_eager=True,
        help="Import a module or .py file that registers components; may be given several times.",
    )(command)  # fmt: skip
    return click.option(
        "--config-dir", metavar="DIR", multiple=True, callback=_config_dir, expose_value=False, is_eager=True,
        help="A folder like conf/ with files of your own, before the shipped ones.",
    )(command)  # fmt: skip


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


def complete(given: list[str], incomplete: str) -> list[str]:
    """Return the completions of `incomplete` after the words `given`.

    Bash breaks words at "=", so there a key and "=" arrive as words of their own and only the value is completed.
    """
    if len(given) > 1 and given[-1] == "=":
        return _values(given[-2], incomplete)
    if given and given[-1] in (*GROUPS, *KEYS):
        return _values(given[-1], incomplete)
    key, equals, value = incomplete.partition("=")
    if equals:
        return [f"{key}={word}" for word in _values(key, value)]
    keys = [key for key in _keys(incomplete, given) if key.startswith(incomplete)]
    if len(keys) == 1 and (values := _values(keys[0], "")):
        return [f"{keys[0]}={value}" for value in values]
    return [f"{key}=" for key in keys]


def _keys(incomplete: str, given: list[str]) -> list[str]:
    group, dot, _ = incomplete.partition(".")
    if dot:
        return [f"{group}.{option}" for option in _options(group, given)] if group in OPTION_GROUPS else []
    return sorted((*GROUPS, *KEYS))


def _values(key: str, incomplete: str) -> list[str]:
    head, comma, last = incomplete.rpartition(",")
    if key in GROUPS:
        words = choices(key)
    elif key in KEYS:
        words = ("false", "true") if TYPES[key] is bool else word_choices(key)
    else:
        words = ()
    return [f"{head}{comma}{word}" for word in words if word.startswith(last)]


def _options(group: str, given: list[str]) -> list[str]:
    chosen = _chosen(group, given) or list(choices(group))
    names: dict[str, Any] = {}
    for name in chosen:
        names |= options(group, name)
    return sorted(names)


def _chosen(group: str, given: list[str]) -> list[str]:
    text = "".join(f"{word}\n" for word in given).replace("\n=\n", "=")  # joins what bash broke
    for word in text.split("\n"):
        key, equals, value = word.partition("=")
        if equals and key == group:
            return [name for name in value.split(",") if name in choices(group)]
    return []
