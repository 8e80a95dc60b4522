"""Shipped cost tables: compressor times by device, joined with a cluster's exchange curves into the Costs of a plan."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from ssfx.cluster import Cluster
from ssfx.costs import Costs, Curve
from ssfx.errors import ConfigError
from ssfx.origin import Origin
from ssfx.paths import data_dir


@dataclass(frozen=True)
class CostTable:
    """Times of one device: `encode` and `host` by compressor name over elements, `decode` over received elements.

    `host` covers copying out, compressing on the host and copying back. `origin` is that of encode and host.
    """

    device: str
    encode: Mapping[str, Curve]
    host: Mapping[str, Curve]
    decode: Curve
    origin: Origin
    decode_origin: Origin


def devices() -> list[str]:
    """Return the devices that have a table."""
    return sorted(path.stem for path in (data_dir() / "costs").glob("*.json"))


@cache
def load(device: str) -> CostTable:
    """Return the shipped table of `device`; ConfigError names the devices that have one."""
    path = data_dir() / "costs" / f"{device}.json"
    if not path.exists():
        raise ConfigError(f"no cost table for device {device}; there is one for {', '.join(devices())}")
    raw = json.loads(path.read_text())
    return CostTable(
        raw["device"],
        {name: Curve.of(curve) for name, curve in raw["encode"].items()},
        {name: Curve.of(curve) for name, curve in raw["host"].items()},
        Curve.of(raw["decode"]),
        Origin(**raw["origin"]),
        Origin(**raw["decode_origin"]),
    )


def costs_on(cluster: Cluster, compressor: str | None, density: float | None) -> Costs:
    """Return the costs of planning `compressor` (a spec, None: dense) at `density` for `cluster`.

    ConfigError names the compressors with a curve when `compressor` has none; nothing is substituted.
    """
    exchange = cluster.exchange()
    network = f"exchange: nominal ring formula over {cluster.bottleneck.gbps:g} Gbit/s ({cluster.source})"
    if compressor is None:
        return Costs(
            cluster.world_size, Curve.zero(), Curve.zero(), Curve.zero(), exchange, Origin("nominal", note=network)
        )
    table = load(cluster.device)
    name = compressor.partition("(")[0]
    if name not in table.encode:
        raise ConfigError(
            f"no cost curve for compressor {name} on {table.device}; there is one for {', '.join(sorted(table.encode))}"
        )
    note = (
        f"encode: {table.origin.kind}, {table.origin.note}; decode: {table.decode_origin.kind}, "
        f"{table.decode_origin.note}; {network}"
    )
    per_element = cluster.world_size * (density or 1.0)
    decode = table.decode
    scaled = Curve(tuple(size / per_element for size in decode.sizes), decode.seconds, decode.unbounded)
    origin = Origin(table.origin.kind, table.origin.hardware, table.origin.date, note, table.origin.versions)
    return Costs(cluster.world_size, table.encode[name], table.host[name], scaled, exchange, origin)


def nominal_costs(cluster: Cluster) -> Costs:
    """Return costs with free compression: enough to see whether a plan is possible, not how long it takes."""
    zero = Curve.zero()
    origin = Origin("nominal", note="compression is free; only for checking a plan")
    return Costs(cluster.world_size, zero, zero, zero, cluster.exchange(), origin)
