"""Options with which any registered scheme can be tried: a compressor it takes, a density where that has an effect."""

from __future__ import annotations

from typing import Any

from ssfx.schemes import CompressOptions, SparseOptions, schemes
from ssfx.schemes.carrier import keeps_fraction


def usual(scheme: str, density: float = 0.01) -> dict[str, Any]:
    """Return {} for dense schemes; topk where any selecting compressor will do, else the scheme's own."""
    entry = schemes[scheme]
    if not isinstance(entry.defaults, CompressOptions):
        return {}
    chosen: dict[str, Any] = {}
    if entry.compressors in ("any", "selecting"):
        chosen["compressor"] = "topk"
    if keeps_fraction(chosen.get("compressor", entry.defaults.compressor)):
        chosen["density"] = density
    return chosen


def gathers(scheme: str) -> bool:
    """True when the sizes of gathered messages are an option."""
    return isinstance(schemes[scheme].defaults, SparseOptions)


def keeps_all(scheme: str) -> dict[str, Any] | None:
    """Return options under which nothing is left out and the result is the dense average, None if there are none."""
    entry = schemes[scheme]
    if entry.dense:
        return {}
    chosen = usual(scheme, 1.0)
    return chosen if "density" in chosen else None
