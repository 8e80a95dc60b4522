"""Files that earlier versions wrote: which of their fields are gone, and which have another name now.

Committed rows and plans have them, whose identity is their content: they load through `up_to_date`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

GONE: Mapping[str, tuple[str, ...]] = {
    "Segment": ("rank",),
}
"""Class -> fields that are dropped."""
RENAMED: Mapping[str, Mapping[str, str]] = {
    "Case": {"control": "time_compute_only"},
}
"""Class -> old name of a field -> its name now."""


def up_to_date(kind: str, raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a `kind` as they are called now, without those that are gone; others are left alone.

    TypeError or ValueError when `raw` is no JSON object.
    """
    names = RENAMED.get(kind, {})
    return {names.get(name, name): value for name, value in dict(raw).items() if name not in GONE.get(kind, ())}
