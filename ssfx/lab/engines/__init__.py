"""Engines: how a list of cases becomes rows. No torch here; an engine that needs it starts other processes."""

from ssfx.lab.engines.base import Engine, engines

__all__ = ["Engine", "engines"]
