"""Typed configuration: the words after a command, with conf/, become Cases or one line that says why not."""

from ssfx.config.cases import Job, Planned, resolve_job, resolve_plan

__all__ = ["Job", "Planned", "resolve_job", "resolve_plan"]
