"""The tables of registered components that `ssfx list` shows; python -m ssfx.cli.component_tables writes them.

`make conf` runs it, a test holds what it writes up to date, and `ssfx list` reads it without importing a component.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

from ssfx.core.files import write_atomic

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
PACKAGES = ("schemes", "compressors", "memories", "collectives", "engines", "workloads", "workloads/catalog")
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
    from ssfx.schemes.carrier import keeps_fraction

    one = build(entry.name)
    words = [
        "additive" if one.additive else "", "error feedback" if one.error_feedback else "",
        "density" if keeps_fraction(entry.name) else "",
    ]  # fmt: skip
    return entry.name, ", ".join(filter(None, words)) or "-", entry.summary


def file_text() -> str:
    """Return what the file has to hold: for each kind its header and lines, and the modules that they are from."""
    parts: dict[str, Any] = {"modules": modules()}
    for kind in sorted(set(KINDS).difference(FOLDERS)):
        header, lines = component_table(kind)
        parts[kind] = [header, *lines]
    return json.dumps(parts, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    write_atomic(SHIPPED, file_text())
