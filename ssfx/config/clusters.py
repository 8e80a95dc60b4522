"""The cluster of a configuration, and whether it is here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ssfx import machine
from ssfx.cluster import Cluster, Link
from ssfx.errors import ConfigError

CPU_RANKS = 2


def cluster_of(node: Mapping[str, Any], world_size: int | None, device: str) -> Cluster:
    """Return the cluster of a composed `cluster` node; "auto" becomes what is here, or `world_size` and `device`.

    ConfigError when a named cluster has another number of devices than `world_size` asks for, or another kind.
    """
    here = node["device"] == "auto"
    kind = local_device(device) if here else _device_name(node["device"])
    per_node = node["devices_per_node"]
    if per_node == "auto":
        per_node = world_size or local_ranks(kind)
    try:
        links = {key: Link(**{k: float(v) for k, v in node[key].items()}) for key in ("intra", "inter")}
        cluster = Cluster(
            node["name"], node["summary"], _count("nodes", node["nodes"]),
            _count("devices_per_node", per_node), kind, links["intra"], links["inter"], node["source"],
        )  # fmt: skip
    except (TypeError, ValueError):
        raise ConfigError(f"cluster={node['name']}: rates, efficiency and latency of a link must be numbers") from None
    if world_size not in (None, cluster.world_size):
        raise ConfigError(
            f"cluster={cluster.name} has {cluster.world_size} devices, so world_size={world_size} does not fit; "
            f"drop it, or set cluster.nodes"
        )
    if not here and device not in ("auto", "cpu" if kind == "cpu" else "cuda"):
        raise ConfigError(f"cluster={cluster.name} has {kind} devices, so device={device} does not fit; drop it")
    return cluster


def local_device(device: str) -> str:
    """Return "cpu" or "cuda" for auto, cpu or cuda; ConfigError for cuda without a GPU."""
    if device == "cuda" and not machine.gpus():
        raise ConfigError("device=cuda needs a GPU and nvidia-smi shows none here; use device=cpu")
    if device == "auto":
        return "cuda" if machine.gpus() else "cpu"
    return device


def local_ranks(device: str) -> int:
    """Return how many ranks this machine runs by default: one per GPU, or two on the CPU if it has two cores."""
    return len(machine.gpus()) if device == "cuda" else min(machine.cores(), CPU_RANKS)


def check_here(cluster: Cluster) -> None:
    """Raise ConfigError, saying what is missing, when real processes cannot be started on `cluster` from here."""
    if cluster.name == "local":
        if cluster.device == "cuda" and cluster.world_size > len(machine.gpus()):
            raise ConfigError(
                f"world_size={cluster.world_size} needs as many GPUs and {len(machine.gpus())} are here; "
                f"use world_size={len(machine.gpus())} or device=cpu"
            )
        return
    nodes = f"{cluster.nodes} node{'s' if cluster.nodes != 1 else ''}"
    raise ConfigError(
        f"cluster={cluster.name} is not here: it has {cluster.world_size} {cluster.device} devices in {nodes}, this "
        f"machine has {machine.description()}, and the simulator that would stand in is not in this version; use "
        "cluster=local, or only plan with ssfx plan"
    )


def _count(key: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"cluster.{key} must be a whole number of at least 1, got {value!r}")
    return value


def _device_name(value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"cluster.device must be the name of a device with a cost table, got {value!r}")
    return value
