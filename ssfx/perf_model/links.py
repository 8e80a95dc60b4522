"""Kinds of links by name: line rate, the share that collectives are reported to reach, latency, and who says so."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from ssfx.core.digests import loads
from ssfx.core.errors import unknown
from ssfx.core.files import read
from ssfx.core.paths import data_dir


def link_kind(name: str) -> dict[str, Any]:
    """Return gbps, efficiency, latency_s, rdma and source of a kind of link; ConfigError with the nearest known one."""
    if short := re.fullmatch(r"(\d+)gbe_tcp", name):  # as people say it
        name = f"eth_{short[1]}_tcp"
    if name not in _table():
        raise unknown("kind of link", name, _table())
    return dict(_table()[name])


@cache
def _table() -> dict[str, Any]:
    return dict(read(data_dir() / "links.json", loads, digest=False))
