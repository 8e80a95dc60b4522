"""The tables of registered components that `ssfx list` shows; python -m ssfx.cli.component_tables writes them.

`make conf` runs it, a test holds what it writes up to date, and `ssfx list` reads it without importing a component.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple
from typing import Any

from ssfx.cli.listing import FOLDERS, KINDS, SHIPPED, Table, modules
from ssfx.collectives import collectives
from ssfx.compressors import build, compressors
from ssfx.config.groups import registry
from ssfx.core.files import write_atomic
from ssfx.schemes.capabilities import HEADER, capabilities
from ssfx.schemes.carrier import keeps_fraction


def component_table(kind: str) -> Table:
    """Return the header and the lines of a kind of component, from the declarations."""
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
