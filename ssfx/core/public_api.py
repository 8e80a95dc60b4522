"""What the top of the package offers to rooms below it, so that none of them has to import upwards.

`ssfx/__init__.py`, which Python runs before any other module of the package, says how its public functions are found.
"""

from collections.abc import Callable
from typing import Any

_find: Callable[[str], Any] | None = None


def open_door(find: Callable[[str], Any]) -> None:
    """Let `through` find the public functions of the package by `find`."""
    global _find
    _find = find


def through(name: str) -> Any:
    """Return the public function `name` of the package."""
    assert _find is not None
    return _find(name)
