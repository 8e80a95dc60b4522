"""Collectives: one file each, holding the exchange on a process group beside its messages and bytes."""

from ssfx.collectives.base import Collective, Traffic, collectives

__all__ = ["Collective", "Traffic", "collectives"]
