"""`ssfx list`: what there is to choose from, one line each."""

from __future__ import annotations

import click

from ssfx.cli.completion import own_components
from ssfx.cli.component_tables import FOLDERS, KINDS, SHIPPED, Table, component_table, modules
from ssfx.cli.terminal import print_table


def _kinds(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return [kind for kind in KINDS if kind.startswith(incomplete)]


@click.command("list", short_help="List schemes, compressors, models, clusters, ...")
@click.argument("kind", required=False, metavar="[KIND]", shell_complete=_kinds)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: of each kind a list of objects.")
@own_components
def list_(kind: str | None, as_json: bool) -> None:
    """Show what there is to choose from, of all kinds or of one.

    Kinds: schemes, compressors, memories, models, datasets, workloads, clusters, experiments, presets, engines,
    collectives.
    """
    from ssfx.core.errors import unknown

    if kind is not None and kind not in KINDS:
        raise unknown("kind", kind, KINDS)
    if as_json:
        import json

        tables = {name: _table(name) for name in ([kind] if kind else KINDS)}
        found = {
            name: [dict(zip(header, line, strict=True)) for line in lines] for name, (header, lines) in tables.items()
        }
        click.echo(json.dumps(found))
        return
    if kind is None:
        for name in KINDS:
            _print(name)
            click.echo()
        return
    _print(kind)


def _print(kind: str) -> None:
    print_table(*_table(kind))


def _table(kind: str) -> Table:
    return _folder(kind) if kind in FOLDERS else _registered(kind)


def _folder(kind: str) -> Table:
    from ssfx.config.groups import choices, file_summary

    group = kind.removesuffix("s")
    return (group, "summary"), [(name, file_summary(group, name)) for name in choices(group)]


def _registered(kind: str) -> Table:
    """Return the shipped table; where there are plugins or other modules than it was made from, import them all."""
    from ssfx.core.files import read_json
    from ssfx.core.plugins import any_plugins

    if SHIPPED.exists() and not any_plugins():
        shipped = read_json(SHIPPED)
        if shipped["modules"] == modules():
            header, *lines = shipped[kind]
            return header, lines
    return component_table(kind)
