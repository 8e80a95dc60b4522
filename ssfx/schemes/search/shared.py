"""What plans of the very same profile and costs share, whichever scheme asks: `auto` asks many of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ssfx.planning.costs import Costs
from ssfx.planning.profile import Profile

Made = TypeVar("Made")

MOST = 3
"""Profiles with costs of which something is kept, the latest ones."""
_made: list[tuple[Profile, Costs, dict[Any, Any]]] = []


def shared(profile: Profile, costs: Costs, key: object, make: Callable[[], Made]) -> Made:
    """Return what `make` makes, once for every `key` of these objects; equal ones count as others."""
    found = next((found for one, other, found in _made if one is profile and other is costs), None)
    if found is None:
        found = {}
        _made.append((profile, costs, found))
        del _made[:-MOST]
    if key not in found:
        found[key] = make()
    made: Made = found[key]
    return made
