"""Collectives: one file each, holding the exchange on a process group beside its messages and bytes."""

from ssfx.collectives.base import Collective, Load, Phase, collectives
from ssfx.collectives.primitives import Traffic
from ssfx.collectives.reducer import Reduced, Reducer, Reduction

__all__ = ["Collective", "Load", "Phase", "Reduced", "Reducer", "Reduction", "Traffic", "collectives"]
