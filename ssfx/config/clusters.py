"""The cluster of a configuration, and whether it is here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ssfx.config.cluster_node import changes, number
from ssfx.config.compose import Point, compose
from ssfx.core import machine
from ssfx.core.errors import ConfigError, unknown
from ssfx.perf_model import devices
from ssfx.perf_model.cluster import Cluster, Link

CPU_RANKS = 2

_TEXT = re.compile(r"(?P<name>[^(]+)(?:\((?P<options>[^)]*)\))?")


def cluster_of(node: Mapping[str, Any], world_size: int | None, device: str) -> Cluster:
    """Return the cluster of a composed `cluster` node; "auto" becomes what is here, or `world_size` and `device`.

    `world_size` 1 is one device of the cluster, alone: what scaling is measured against. ConfigError when a named
    cluster has another number of devices than `world_size` asks for, or another kind.
    """
    here = node["device"] == "auto"
    kind = local_device(device) if here else _device_name(node["device"])
    nodes, per_node = _count("nodes", node["nodes"]), node["devices_per_node"]
    if per_node == "auto":
        per_node = _share(world_size, nodes) if world_size else local_ranks(kind)
    try:
        links = {key: _link(key, node[key]) for key in ("intra", "inter")}
        cluster = Cluster(
            node["name"], node["summary"], nodes,
            _count("devices_per_node", per_node), kind, links["intra"], links["inter"], node["source"],
            _count("nics_per_node", node["nics_per_node"]), node.get("factors", {}), node["calibration"],
            node.get("codec_times", ""),
        )  # fmt: skip
    except (TypeError, ValueError):
        raise ConfigError(f"cluster={node['name']}: rates, efficiency and latency of a link must be numbers") from None
    for primitive in cluster.factors:
        if primitive not in (known := cluster.exchange()):
            raise unknown("primitive under cluster.factors", primitive, known)
    if world_size == 1:
        cluster = replace(cluster, nodes=1, devices_per_node=1)
    if world_size not in (None, cluster.world_size):
        raise ConfigError(
            f"cluster={cluster.name} has {cluster.world_size} devices, so world_size={world_size} does not fit; "
            f"drop it, or set cluster.nodes"
        )
    if not here and device not in ("auto", "cpu" if kind == "cpu" else "cuda"):
        raise ConfigError(f"cluster={cluster.name} has {kind} devices, so device={device} does not fit; drop it")
    return cluster


def cluster_text(name: str, options: Mapping[str, Any]) -> str:
    """Return what Case.cluster says of the cluster `name` with `options`: only those that make it another one.

    The calibration is compared with that of the file, all else with the numbers of the calibration that is chosen.
    """
    if not options:
        return name
    own = compose({"cluster": name})["cluster"]
    chosen = options.get("calibration", own["calibration"])
    base = own if chosen == own["calibration"] else compose({"cluster": name, "cluster.calibration": chosen})["cluster"]
    changed = {key: value for key, value in options.items() if key != "calibration" and changes(base, key, value)}
    if base is not own:
        changed["calibration"] = chosen
    inside = ",".join(f"{key}={number(value)}" for key, value in sorted(changed.items()))
    return f"{name}({inside})" if inside else name


def cluster_at(point: Point, node: Mapping[str, Any], world_size: int | None, device: str) -> Cluster:
    """Return the cluster of a point and its composed `cluster` node; its name is that of Case.cluster."""
    cluster = cluster_of(node, world_size, device)
    check_recorded(point, cluster)
    options = {key.partition(".")[2]: value for key, value in point.items() if key.startswith("cluster.")}
    return replace(cluster, name=cluster_text(cluster.name, options))


def check_recorded(point: Point, cluster: Cluster) -> None:
    """Raise ConfigError where recorded times are asked for by name and there are none of this cluster.

    Where its file alone says so, a cluster without any has nominal ones, and rows and outputs call them that.
    """
    if point.get("cluster.calibration") != "recorded" or cluster.device != "cpu":
        return
    from ssfx.perf_model.recorded_times import recorded_system  # late: few commands ask

    name = cluster.name.partition("(")[0]
    if recorded_system(name, cluster.world_size) is None:
        raise ConfigError(
            f"nothing is recorded of cluster={name} with {cluster.world_size} ranks: measure it with ssfx profile "
            f"network cluster={name} world_size={cluster.world_size}, or use cluster.calibration=nominal"
        )


def cluster_named(text: str, world_size: int | None, device: str) -> Cluster:
    """Return the cluster of a Case.cluster; its name is the whole text."""
    match = _TEXT.fullmatch(text)
    assert match is not None
    given = [part.partition("=") for part in (match["options"] or "").split(",") if part]
    options = {f"cluster.{key}": _value(value) for key, _, value in given}
    node = compose({"cluster": match["name"], **options})["cluster"]
    return replace(cluster_of(node, world_size, device), name=text)


def local_device(device: str) -> str:
    """Return "cpu" or "cuda" for auto, cpu or cuda; ConfigError for cuda without a GPU."""
    if device == "cuda" and not machine.gpus():
        raise ConfigError("device=cuda needs a GPU and nvidia-smi shows none here; use device=cpu")
    if device == "auto":
        return "cuda" if machine.gpus() else "cpu"
    return device


def local_ranks(device: str) -> int:
    """Return how many ranks this machine has by default: one per GPU, or two on the CPU if it has two cores."""
    return len(machine.gpus()) if device != "cpu" and machine.gpus() else min(machine.cores(), CPU_RANKS)


def check_here(cluster: Cluster) -> None:
    """Raise ConfigError, saying what is missing, when real processes cannot be started on `cluster` from here."""
    if cluster.name == "local":
        if cluster.device == "cuda" and cluster.world_size > len(machine.gpus()):
            raise ConfigError(
                f"world_size={cluster.world_size} needs as many GPUs and {len(machine.gpus())} are here; "
                f"use world_size={len(machine.gpus())} or device=cpu"
            )
        return
    from ssfx.engines.hosts import Network, missing

    if Network.of(cluster.name):
        if problem := missing():
            raise ConfigError(f"cluster={cluster.name} cannot be emulated here, {problem}; use cluster=local")
        return


def engine_of(name: str, clusters: Sequence[str]) -> str:
    """Return the engine called `name` for clusters of these names; "auto" is the one that fits, a misfit a ConfigError.

    Clusters that are neither here nor emulated here are simulated; every cluster can be. Slurm is never guessed.
    """
    from ssfx.engines import engines
    from ssfx.engines.hosts import Network

    if name != "auto" and name not in engines:
        raise unknown("engine", name, ["auto", *engines.names()])
    if name == "simulate":
        return name
    if name == "slurm":
        for cluster in clusters:
            if cluster == "local" or Network.of(cluster):
                raise ConfigError(
                    f"engine=slurm asks Slurm for nodes, and cluster={cluster} is on this machine; name the nodes, for "
                    "example cluster=16gpu cluster.nodes=2, or use engine=auto"
                )
        return name
    fitting = {
        cluster: "torchrun" if cluster == "local" else "netns" if Network.of(cluster) else "simulate"
        for cluster in clusters
    }
    for cluster, fits in fitting.items():
        if fits != fitting[clusters[0]]:
            raise ConfigError(
                f"cluster={clusters[0]} needs engine={fitting[clusters[0]]} and cluster={cluster} engine={fits}; start "
                "ssfx run once for each, or choose engine=simulate"
            )
        if name != "auto" and fits == "simulate":
            raise ConfigError(
                f"engine={name} starts processes on this machine ({machine.description()}), which cluster={cluster} is "
                "not; use engine=simulate, engine=slurm, or cluster=local"
            )
        if name not in ("auto", fits):
            raise ConfigError(f"engine={name} does not run cluster={cluster}; use engine={fits}, or another cluster")
    return fitting[clusters[0]]


def _count(key: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"cluster.{key} must be a whole number of at least 1, got {value!r}")
    return value


def _share(world_size: int, nodes: int) -> int:
    """Return the ranks of each node; one rank is alone, wherever it is."""
    if world_size > 1 and world_size % nodes:
        raise ConfigError(
            f"world_size={world_size} cannot be spread evenly over cluster.nodes={nodes}; use "
            f"world_size={nodes * max(1, round(world_size / nodes))}"
        )
    return max(1, world_size // nodes)


def _link(key: str, node: Mapping[str, Any]) -> Link:
    try:
        kind = str(node.get("link", ""))
        numbers = {name: float(value) for name, value in node.items() if name != "link"}
        return Link.of_kind(kind, **numbers) if kind else Link(**numbers)
    except ConfigError as error:
        raise ConfigError(f"cluster.{key}.{error}") from None


def _device_name(value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"cluster.device must be the name of a device, got {value!r}")
    return devices.device(value).name


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
