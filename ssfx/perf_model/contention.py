"""Contention: how exchanges, and computing that goes on under them, slow one another down (docs/calibration.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ssfx.planning.costs import Curve

USUAL_BYTES = 2**20
"""Of an exchange whose share of computing power stands for all sizes."""


@dataclass(frozen=True)
class Contention:
    """What a rank's exchanges and its computing take from one another while both go on.

    "Under compute" means: while every rank runs forward or backward passes. Sizes of curves are the bytes that one rank
    contributes. Raises ValueError when a share is not in [0, 1], or when the seconds of an exchange under compute are
    known without the computing power it takes, or the other way round.
    """

    occupancy: Mapping[str, float] = field(default_factory=dict)
    """Primitive -> share of the rank's computing power, in [0, 1], that an exchange takes while it runs. It counts only
    where nothing was measured under compute."""
    under_compute_s: Mapping[str, Curve] = field(default_factory=dict)
    """Primitive -> seconds of the exchange under compute, where that was measured."""
    under_compute_cpu_s: Mapping[str, Curve] = field(default_factory=dict)
    """Primitive -> what that exchange takes from computing, in seconds of all computing power that a rank has."""
    in_flight: int = 1
    """How many exchanges are worked on at a time. They start in order and share the wire."""

    def __post_init__(self) -> None:
        if self.under_compute_s.keys() != self.under_compute_cpu_s.keys():
            raise ValueError("an exchange under compute needs both its time and the computing power it takes")
        for primitive, share in self.occupancy.items():
            if not 0 <= share <= 1:
                raise ValueError(f"occupancy of {primitive} must be in [0, 1], got {share}")

    def shares(self) -> dict[str, float]:
        """Return by primitive the share of computing power that an exchange takes; as measured with `USUAL_BYTES`."""
        found = dict(self.occupancy)
        for name, curve in self.under_compute_s.items():
            seconds = curve(USUAL_BYTES)
            found[name] = min(1.0, self.under_compute_cpu_s[name](USUAL_BYTES) / seconds) if seconds else 0.0
        return found
