"""`ssfx list`: what there is to choose from, one line each.

`python -m ssfx.cli.listing` writes the tables that it shows (`make conf` does), so that no component is imported to
list them; a test holds them up to date.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

import click

from ssfx.cli.completion import own_components
from ssfx.cli.terminal import print_table
from ssfx.core.errors import LISTED, ConfigError, unknown
from ssfx.core.files import read_json, write_atomic
from ssfx.core.plugins import any_plugins


def _kinds(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return [kind for kind in KINDS if kind.startswith(incomplete)]


@click.command("list")
@click.argument("kind", required=False, metavar="[KIND]", shell_complete=_kinds)
@click.argument("name", required=False, metavar="[NAME]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: of each kind a list of objects.")
@own_components
def list_(kind: str | None, name: str | None, as_json: bool) -> None:
    """Show what there is to choose from, of all kinds or of one; of one choice its options, or its file.

    Kinds: schemes, compressors, memories, models, datasets, workloads, clusters, devices, links, experiments, presets,
    engines, collectives, published (quality that others measured).
    """
    if kind is not None and kind not in KINDS:
        raise unknown("kind", kind, KINDS, {**_OTHER_KINDS, **_place_of(kind)})
    if kind and name:
        if as_json:
            raise ConfigError(f"--json lists a whole kind; drop it, or {name}")
        click.echo(_choice(kind, name))
        return
    if as_json:
        tables = {name: _table(name) for name in ([kind] if kind else KINDS)}
        found = {
            name: [dict(zip(header, line, strict=True)) for line in lines] for name, (header, lines) in tables.items()
        }
        click.echo(json.dumps(found))
        return
    for one in [kind] if kind else KINDS:
        print_table(*_table(one))
        if kind is None:
            click.echo()


_OTHER_KINDS = {
    **dict.fromkeys(("gpu", "gpus", "hardware"), "devices"),
    **dict.fromkeys(("network", "networks", "nics"), "links"),
    **dict.fromkeys(("papers", "claims", "figures"), "ssfx status, which has them"),
    "runs": "ssfx status, which has them",
    "optimizers": "optimizer=sgd, adam, adamw or muon",
    "precisions": "precision=fp32, tf32, bf16 or fp16",
}
"""What people ask for, and where that is."""


def _place_of(word: str) -> dict[str, str]:
    """Return in which kind a choice is that was asked for without its kind."""
    from ssfx.config.groups import GROUPS, choices

    group = next((one for one in GROUPS if word in choices(one)), "")
    return {word: f"{'memories' if group == 'memory' else f'{group}s'} {word}"} if group else {}


def _choice(kind: str, name: str) -> str:
    """Return what is known of one choice: the file of a cluster, the options of a scheme, the line of a device."""
    from ssfx.collectives import collectives
    from ssfx.config.groups import check_choice, registry
    from ssfx.config.option_text import component_text
    from ssfx.core.component_file import path_of

    if kind in FOLDERS:
        path = path_of(kind.removesuffix("s"), check_choice(kind.removesuffix("s"), name))
        assert path is not None
        return path.read_text(encoding="utf-8").rstrip()
    if kind in (*DATA, "engines"):
        header, lines = _table(kind)
        found = {line[0]: line for line in lines}
        if name not in found:
            raise unknown(header[0], name, found)
        return "\n".join(f"{key}: {value}" for key, value in zip(header, found[name], strict=True))
    group = {"memories": "memory"}.get(kind, kind.removesuffix("s"))
    return component_text((collectives if kind == "collectives" else registry(group))[name])


def _table(kind: str) -> Table:
    if kind == "links":
        from ssfx.perf_model.links import link_lines

        return ("link", "Gbit/s", "reached", "us a message", "source"), link_lines()
    if kind == "published":
        from ssfx.advice.published import listed

        return ("point", "grade", "published"), listed()
    if kind == "devices":
        from ssfx.perf_model.devices import device_lines

        return ("device", "GiB", "GB/s", "TFLOP/s bf16", "inside", "title"), device_lines()
    return _folder(kind) if kind in FOLDERS else _registered(kind)


def _folder(kind: str) -> Table:
    from ssfx.config.groups import choices, file_summary

    group = kind.removesuffix("s")
    return (group, "summary"), [(name, file_summary(group, name)) for name in choices(group)]


def _registered(kind: str) -> Table:
    """Return the shipped table; where there are plugins or other modules than it was made from, import them all."""
    if SHIPPED.exists() and not any_plugins():
        shipped = read_json(SHIPPED)
        if shipped["modules"] == modules():
            header, *lines = shipped[kind]
            return header, lines
    return component_table(kind)


KINDS = LISTED
FOLDERS = ("workloads", "clusters", "experiments", "presets")
"""Those whose entries are files of conf/."""
DATA = ("devices", "links", "published")
"""Those whose entries are lines of a file of data/."""
PACKAGES = ("schemes", "compressors", "compressors/memories", "collectives", "lab/engines", "lab/workloads/catalog")
SHIPPED = Path(__file__).parents[1] / "data" / "component_tables.json"
"""The tables of all other kinds, which `make conf` writes: importing 150 modules would take longer than the rest."""
Table = tuple[Sequence[str], Iterable[Sequence[str]]]


def modules() -> list[str]:
    """Return the files that components are declared in, below ssfx/."""
    folders = (SHIPPED.parents[1] / package for package in PACKAGES)
    return sorted(f"{folder.name}/{path.name}" for folder in folders for path in folder.glob("*.py"))


def component_table(kind: str) -> Table:
    """Return the header and the lines of a kind of component, from the declarations."""
    # late: the shipped tables are there so that no component has to be imported
    from ssfx.collectives import collectives
    from ssfx.compressors import compressors
    from ssfx.config.groups import registry
    from ssfx.schemes.capabilities import HEADER, capabilities

    if kind == "schemes":
        return HEADER, [astuple(line) for line in capabilities()]
    if kind == "compressors":
        return ("compressor", "supports", "summary"), [_compressor(entry) for entry in compressors]
    if kind == "collectives":
        return ("collective", "source", "summary"), [(one.name, one.cls.source, one.summary) for one in collectives]
    group = {"memories": "memory"}.get(kind, kind.removesuffix("s"))
    lines = [(entry.name, entry.summary) for entry in registry(group)]
    if group == "engine":
        lines.insert(0, ("auto", "the engine that can run the chosen cluster from here"))
    return (group, "summary"), lines


def _compressor(entry: Any) -> Sequence[str]:
    from ssfx.compressors import build
    from ssfx.schemes.transport import keeps_fraction

    one = build(entry.name)
    words = [
        "additive" if one.additive else "",
        "error feedback" if one.error_feedback else "",
        "density" if keeps_fraction(entry.name) else "",
    ]
    return entry.name, ", ".join(filter(None, words)) or "-", entry.summary


def file_text() -> str:
    """Return what the file has to hold: for each kind its header and lines, and the modules that they are from."""
    parts: dict[str, Any] = {"modules": modules()}
    for kind in sorted(set(KINDS).difference((*FOLDERS, *DATA))):
        header, lines = component_table(kind)
        parts[kind] = [header, *lines]
    return json.dumps(parts, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    write_atomic(SHIPPED, file_text())
