"""Typed configuration: the words after a command, with conf/, become Cases or one line that says why not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ssfx.lab.config.cases import Job, Planned, resolve_job, resolve_plan

__all__ = ["Job", "Planned", "resolve_job", "resolve_plan"]


def __getattr__(name: str) -> Any:
    # Tab completion needs the names of keys and nothing else, so the components are imported on first use.
    if name in __all__:
        from ssfx.lab.config import cases

        return getattr(cases, name)
    raise AttributeError(f"module 'ssfx.config' has no attribute {name!r}")
