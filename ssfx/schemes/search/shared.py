"""What plans of the very same profile and costs share, whichever scheme asks: an answer asks all of them.

Other costs of the same profile are those of another bandwidth: what does not depend on costs is made once for all.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from ssfx.planning.costs import Costs
from ssfx.planning.profile import Profile

Made = TypeVar("Made")

MOST = 8
"""Profiles with costs that have cached results, the latest last."""
_made: list[tuple[Profile, Costs | None, dict[Any, Any]]] = []


def shared(profile: Profile, costs: Costs | None, key: object, make: Callable[[], Made]) -> Made:
    """Return what `make` makes, once for every `key` of these objects; equal ones count as others.

    costs: None for what depends on the profile alone.
    """
    at = next((at for at, (one, other, _) in enumerate(_made) if one is profile and other is costs), None)
    _made.append((profile, costs, {}) if at is None else _made.pop(at))
    del _made[:-MOST]
    found = _made[-1][2]
    if key not in found:
        found[key] = make()
    made: Made = found[key]
    return made
