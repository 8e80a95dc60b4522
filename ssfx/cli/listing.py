"""`ssfx list`: what there is to choose from, one line each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple
from typing import Any

import click

from ssfx.cli.completion import own_components
from ssfx.cli.terminal import print_table

KINDS = (
    "schemes",
    "compressors",
    "memories",
    "models",
    "datasets",
    "workloads",
    "clusters",
    "experiments",
    "presets",
    "engines",
    "collectives",
)
FOLDERS = ("workloads", "clusters", "experiments", "presets")
"""Those whose entries are files of conf/."""
Table = tuple[Sequence[str], Iterable[Sequence[str]]]


def _kinds(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return [kind for kind in KINDS if kind.startswith(incomplete)]


@click.command("list", short_help="List schemes, compressors, models, clusters, ...")
@click.argument("kind", required=False, metavar="[KIND]", shell_complete=_kinds)
@own_components
def list_(kind: str | None) -> None:
    """Show what there is to choose from, of all kinds or of one.

    Kinds: schemes, compressors, memories, models, datasets, workloads, clusters, experiments, presets, engines,
    collectives.
    """
    from ssfx.core.errors import unknown

    if kind is None:
        for name in KINDS:
            _print(name)
            click.echo()
        return
    if kind not in KINDS:
        raise unknown("kind", kind, KINDS)
    _print(kind)


def _print(kind: str) -> None:
    if kind == "schemes":
        header, lines = _schemes()
    elif kind == "compressors":
        header, lines = _compressors()
    elif kind == "collectives":
        header, lines = _collectives()
    else:
        header, lines = _folder(kind) if kind in FOLDERS else _registered(kind)
    print_table(header, lines)


def _schemes() -> Table:
    from ssfx.schemes.capabilities import HEADER, capabilities

    return HEADER, (astuple(line) for line in capabilities())


def _compressors() -> Table:
    from ssfx.compressors import build, compressors
    from ssfx.schemes.carrier import keeps_fraction

    def line(entry: Any) -> Sequence[str]:
        one = build(entry.name)
        words = [
            "additive" if one.additive else "", "error feedback" if one.error_feedback else "",
            "density" if keeps_fraction(entry.name) else "",
        ]  # fmt: skip
        return entry.name, ", ".join(filter(None, words)) or "-", entry.summary

    return ("compressor", "supports", "summary"), map(line, compressors)


def _collectives() -> Table:
    from ssfx.collectives import collectives

    return ("collective", "source", "summary"), [(one.name, one.cls.source, one.summary) for one in collectives]


def _folder(kind: str) -> Table:
    from ssfx.config.groups import choices, file_summary

    group = kind.removesuffix("s")
    return (group, "summary"), [(name, file_summary(group, name)) for name in choices(group)]


def _registered(kind: str) -> Table:
    from ssfx.config.groups import registry

    group = {"memories": "memory"}.get(kind, kind.removesuffix("s"))
    lines = [(entry.name, entry.summary) for entry in registry(group)]
    if group == "engine":
        lines.insert(0, ("auto", "the engine that can run the chosen cluster from here"))
    return (group, "summary"), lines
