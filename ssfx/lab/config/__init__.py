"""The words of `ssfx run` and of what measures, with conf/, become Cases or one line that says why not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ssfx.lab.config.cases import Job, resolve_job

__all__ = ["Job", "resolve_job"]


def __getattr__(name: str) -> Any:
    # Tab completion needs the names of keys and nothing else, so the components are imported on first use.
    if name in __all__:
        from ssfx.lab.config import cases

        return getattr(cases, name)
    raise AttributeError(f"module 'ssfx.lab.config' has no attribute {name!r}")
