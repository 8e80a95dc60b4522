"""Files that earlier versions wrote: which of their fields are gone, and which have another name now.

Every reader of JSON passes what it read through `up_to_date`, so that old files load and nothing else knows about them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

GONE: Mapping[str, tuple[str, ...]] = {
    "TimingModel": ("yardstick_s", "queued", "queued_beside", "queued_cpu"),
    "Profile": ("yardstick_s",),
    "Segment": ("rank",),
}
"""Class -> fields that are dropped: no prediction needs them (docs/validation.md)."""
RENAMED: Mapping[str, Mapping[str, str]] = {
    "TimingModel": {"beside": "under_compute_s", "cpu": "under_compute_cpu_s"},
    "Case": {"control": "time_compute_only"},
}
"""Class -> old name of a field -> its name now."""


def up_to_date(kind: str, raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a `kind` as they are called now, without those that are gone; others are left alone.

    TypeError or ValueError when `raw` is no JSON object.
    """
    names = RENAMED.get(kind, {})
    return {names.get(name, name): value for name, value in dict(raw).items() if name not in GONE.get(kind, ())}
