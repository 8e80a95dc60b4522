"""A cluster as the mesh of a sharded model sees it: the ranks that share a replica, and those that hold one shard.

Neighbours by rank share a replica, as `init_device_mesh("cuda", (replicas, shards))` places them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ssfx.core.errors import ConfigError
from ssfx.perf_model.build_timing_model import system_on
from ssfx.perf_model.cluster import Cluster
from ssfx.perf_model.timing_model import TimingModel


@dataclass(frozen=True)
class Mesh:
    """The times of both legs of a sharded exchange; `replicas` is None where no shard has a replica.

    apart: whether they travel over different links, so that both may be under way at full speed.
    """

    shards: TimingModel
    replicas: TimingModel | None
    apart: bool

    def at_bandwidth(self, factor: float) -> Mesh:
        """Return the mesh with `factor` times the bandwidth of all links, and the same latency."""
        replicas = self.replicas and self.replicas.at_bandwidth(factor)
        return replace(self, shards=self.shards.at_bandwidth(factor), replicas=replicas)


def shards_of(cluster: Cluster, kind: str, shards: int | None) -> int:
    """Return the number of shards that a kind of sharding has on a cluster; None: all ranks, or those of a node.

    ConfigError, with the nearest that works, where ranks do not fill a mesh of so many shards.
    """
    world, node = cluster.world_size, cluster.devices_per_node
    if world == 1:
        raise ConfigError(f"sharding={kind} shares a model among ranks, and world_size=1 is one; use sharding=none")
    if kind == "fsdp":
        if shards not in (None, world):
            near = _nearest(cluster, shards)
            other = f"sharding=hsdp shards={near}" if near else f"shards={world}"
            raise ConfigError(
                f"sharding=fsdp has one shard on each of the {world} ranks, and shards={shards} is another number; "
                f"use {other}, or leave shards out"
            )
        return world
    chosen = node if shards is None else shards
    near = _nearest(cluster, chosen)
    if not near:
        raise ConfigError(
            f"sharding=hsdp on {world} ranks in nodes of {node} has no replicas of shards; use sharding=fsdp"
        )
    if chosen != near:
        said = f"shards={shards}" if shards is not None else f"one shard on each of the {node} devices of a node"
        raise ConfigError(
            f"sharding=hsdp with {said} does not fill {world} ranks in nodes of {node} with replicas; "
            f"use shards={near}, or sharding=fsdp"
        )
    return chosen


def _nearest(cluster: Cluster, shards: int | None) -> int:
    """Return the number of shards nearest to `shards` such that several replicas fill the ranks; 0 where none do."""
    world, node = cluster.world_size, cluster.devices_per_node
    able = [n for n in range(2, world) if world % n == 0 and (node % n == 0 or n % node == 0)]
    return min(able, key=lambda n: (abs(n - (shards or node)), n), default=0)


def mesh_on(cluster: Cluster, shards: int) -> Mesh:
    """Return the times of a mesh with so many shards on a cluster; all its ranks are a multiple of that."""
    if shards == cluster.world_size:
        return Mesh(system_on(cluster), None, apart=False)
    inside, across = _clusters(cluster, shards)
    return Mesh(system_on(inside), system_on(across), apart=inside.nodes == 1 and cluster.nodes > 1)


def neighbours_on(cluster: Cluster, ranks: int) -> TimingModel:
    """Return the times of so many neighbours by rank, which exchange among themselves as all others do.

    ConfigError where nodes cut some of such groups: then some have a slow line between them, and others have none.
    """
    node = cluster.devices_per_node
    if cluster.nodes > 1 and node % ranks and ranks % node:
        near = min((n for n in range(1, node + 1) if node % n == 0), key=lambda n: (abs(n - ranks), n))
        raise ConfigError(f"nodes of {node} devices cut groups of ranks_per_group={ranks}; use ranks_per_group={near}")
    return system_on(_clusters(cluster, ranks)[0])


def _clusters(cluster: Cluster, shards: int) -> tuple[Cluster, Cluster]:
    """Return the ranks of one replica and those of one shard, each as a cluster.

    All shards of a node are summed over their replicas at once, so that they share its cards. What was measured of all
    ranks together (`busbw_gbps`) is the rate that the shards share between nodes; tables are of whole nodes.
    """
    node = cluster.devices_per_node
    there = min(shards, node)  # ranks of one replica in a node, each of which has another shard
    measured = cluster.busbw_gbps
    between = cluster.inter
    if measured is not None and cluster.nodes > 1:
        between = replace(between, gbps=measured / cluster.nics_per_node, efficiency=1.0)
    plain = replace(cluster, inter=between, busbw_gbps=None, small_allreduce_us=None)
    inside = replace(plain, nodes=max(1, shards // node), devices_per_node=there)
    one_node = cluster.nodes == 1
    if one_node and measured is not None:
        plain = inside = replace(inside, intra=replace(cluster.intra, gbps=measured, efficiency=1.0))
    shared = replace(between, efficiency=between.efficiency / there)
    across = replace(
        plain,
        nodes=cluster.nodes // max(1, shards // node),
        devices_per_node=node // there,
        inter=shared,
        tables=() if there > 1 else cluster.tables,
    )
    return inside, across
