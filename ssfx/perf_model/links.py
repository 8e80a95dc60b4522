"""Kinds of links by name: line rate, the share that collectives are reported to reach, latency, and who says so."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from ssfx.core.errors import ConfigError, unknown
from ssfx.core.files import loads, read
from ssfx.core.paths import data_dir
from ssfx.perf_model.devices import device, has_sheet

FAMILIES = ("pcie", "nvlink")
"""Words for the kind of link that a device has; the device says which generation that is."""


def link_kind(name: str, on: str = "") -> dict[str, Any]:
    """Return kind, gbps, efficiency, latency_s, rdma and source of a kind of link; ConfigError with the nearest one.

    "pcie" and "nvlink" are those of the device `on`; ConfigError where it has none. switch_efficiency is there where
    the switch sums.
    """
    if name in FAMILIES:
        name = _of_device(name, on)
    name = full_name(name)
    if name not in _table():
        raise unknown("kind of link", name, (*FAMILIES, *_table()))
    return {"kind": name, **_table()[name]}


def full_name(name: str) -> str:
    """Return the name in the table for 25gbe_tcp, as people say it; any other name as it is."""
    short = re.fullmatch(r"(\d+)gbe_tcp", name)
    return f"eth_{short[1]}_tcp" if short else name


def _of_device(family: str, on: str) -> str:
    if not has_sheet(on):
        raise ConfigError(f"{family} is another link on every device; name the device, or one of {', '.join(_table())}")
    inside = device(on).inside
    if family not in inside:
        others = " or ".join(sorted(inside))
        raise ConfigError(f"a node's {on} devices are not joined by {family}; use {others}, or give the link's numbers")
    return inside[family]


@cache
def _table() -> dict[str, Any]:
    return dict(read(data_dir() / "links.json", loads))
