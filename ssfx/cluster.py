"""The Cluster: how many devices of which kind, joined by which links, and where those numbers come from."""

from __future__ import annotations

from dataclasses import dataclass

from ssfx.costs import Curve, ring_exchange
from ssfx.errors import ConfigError


@dataclass(frozen=True)
class Link:
    """One kind of connection: line rate in Gbit/s, share of it that a stream reaches, latency of one message."""

    gbps: float
    efficiency: float
    latency_s: float

    def __post_init__(self) -> None:
        if self.gbps <= 0 or self.latency_s < 0:
            raise ConfigError(
                f"a link needs a positive rate and a latency >= 0, got {self.gbps} Gbit/s, {self.latency_s} s"
            )
        if not 0 < self.efficiency <= 1:
            raise ConfigError(f"link efficiency must be in (0, 1], got {self.efficiency}")

    @property
    def beta_s_per_byte(self) -> float:
        """Seconds per byte in one direction at the effective rate."""
        return 8e-9 / (self.gbps * self.efficiency)


@dataclass(frozen=True)
class Cluster:
    """`nodes` machines with `devices_per_node` devices each; `source` says where the numbers come from.

    `device` names a device with a cost table (cpu, a100, ...); "auto" means what is found when the run starts.
    """

    name: str
    summary: str
    nodes: int
    devices_per_node: int
    device: str
    intra: Link
    inter: Link
    source: str

    def __post_init__(self) -> None:
        if self.nodes < 1 or self.devices_per_node < 1:
            raise ConfigError(f"cluster {self.name!r} needs at least one node with one device")

    @property
    def world_size(self) -> int:
        """Number of ranks, one per device."""
        return self.nodes * self.devices_per_node

    @property
    def bottleneck(self) -> Link:
        """The slowest link that a ring over all devices crosses."""
        return self.intra if self.nodes == 1 else self.inter

    def exchange(self) -> dict[str, Curve]:
        """Return nominal ring curves over the bottleneck link."""
        link = self.bottleneck
        return ring_exchange(self.world_size, link.latency_s, link.beta_s_per_byte)
