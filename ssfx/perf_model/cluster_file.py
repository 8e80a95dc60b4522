"""The files of conf/cluster/: the Cluster that a ClusterChoice means, and the choice that a file and options make."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

from ssfx.core import machine, slurm_site
from ssfx.core.case import ClusterChoice
from ssfx.core.component_file import component_file
from ssfx.core.errors import ConfigError, unknown
from ssfx.core.numbers import as_number, numeric, whole
from ssfx.core.plausible import plausible
from ssfx.perf_model import devices
from ssfx.perf_model.cluster import MEASURABLE, Calibration, Cluster, Link
from ssfx.perf_model.exchange_tables import tables_of
from ssfx.perf_model.links import FAMILIES, full_name

CALIBRATIONS: tuple[str, ...] = get_args(Calibration)
PRINTED = ("published", "fitted")
"""Calibrations that rest on what a paper prints; a cluster's file has a section for each that it has."""
CPU_RANKS = 2
_SHAPE = ("nodes", "devices_per_node")
_OF_NETWORK = ("intra", "inter", "nics_per_node", "factors", "busbw_gbps", "small_allreduce_us")
"""Options that describe another network than the tables of a cluster's file."""


def cluster_on(choice: ClusterChoice, world_size: int | None, device: str) -> Cluster:
    """Return the cluster that a case ran or runs on; its name is the text of the choice."""
    node = with_options(component_file("cluster", choice.name), choice.options)
    return replace(cluster_of(node, world_size, device), name=str(choice))


def choice_of(name: str, options: Mapping[str, Any]) -> ClusterChoice:
    """Return the choice of cluster `name` with `options`, keeping only those that make it another cluster.

    The calibration is compared with that of the file, all else with the numbers of the calibration that is chosen. A
    device and a kind of link have the names of their tables, so that two spellings are one choice and one run id.
    """
    own = component_file("cluster", name) if options else {}
    chosen = options.get("calibration", own.get("calibration"))
    base = own if chosen == own.get("calibration") else calibrated(own, {"calibration": chosen})
    plain = {key: _full(key, value) for key, value in options.items()}
    changed = {key: value for key, value in plain.items() if key != "calibration" and changes(base, key, value)}
    if base is not own:
        changed["calibration"] = chosen
    return ClusterChoice(name, changed)


def with_options(node: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a cluster's node in the calibration that `options` choose, with the other options put in their place.

    Tables of exchanges are of the network in the file: options that describe another one have formulas.
    """
    if said := next((key for key in options if key.startswith(slurm_site.PREFIX)), None):
        raise ConfigError(
            f"cluster.{said} is for Slurm and says nothing of a cluster; use it with ssfx run engine=slurm"
        )
    found = calibrated(node, options)
    if any(key.partition(".")[0] in _OF_NETWORK and changes(found, key, value) for key, value in options.items()):
        found.pop("exchanges", None)
    for key, value in sorted(options.items(), key=lambda item: not item[0].endswith(".link")):
        link, dot, field = key.rpartition(".")
        if field == "link":  # another kind has all its own numbers
            found[link] = {"link": value}
        elif dot:
            found[link] = {**found[link], field: value}
        elif key != "calibration":
            found[key] = value
    return found


def calibrated(node: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a cluster's node with the numbers of the calibration that `options` choose, or else its file.

    What was recorded describes the machine as it is: options that describe other devices or links than the file get
    nominal times. ConfigError for a calibration that the cluster does not have.
    """
    own = node["calibration"]
    given = {key: value for key, value in options.items() if key != "calibration"}
    changed = [key for key, value in given.items() if own == "recorded" and changes(node, key, value)]
    wanted = options.get("calibration", "nominal" if changed else own)
    if wanted not in CALIBRATIONS:
        raise unknown("calibration", str(wanted), CALIBRATIONS)
    printed = node.get(wanted) if wanted in PRINTED else None
    if (wanted in PRINTED and not printed) or (wanted == "recorded" and own != "recorded"):
        raise ConfigError(f"cluster={node['name']} has no {wanted} calibration; use cluster.calibration=nominal")
    if wanted == "recorded" and changed:
        raise ConfigError(f"cluster.{changed[0]} does not change what was recorded; use cluster.calibration=nominal")
    found = dict(node)
    if printed:
        for key, value in printed.items():
            both = isinstance(found.get(key), Mapping) and isinstance(value, Mapping)
            found[key] = {**found[key], **value} if both else value
        found["source"] = f"{node['source']}; {printed['source']}"
    return {**found, "calibration": wanted}


def changes(node: Mapping[str, Any], option: str, value: Any) -> bool:
    """Return whether `option` with `value` describes another cluster than `node`, in its calibration.

    The number of devices that a file leaves open is no property of the cluster, but the number of ranks. What was
    recorded is no line rate, so that even the one in the file is another description.
    """
    if option in _SHAPE:
        return numeric(node[option]) not in ("auto", numeric(value))
    if node["calibration"] == "recorded":
        return True
    link, dot, field = option.rpartition(".")
    said = node[link].get(field) if dot else node.get(option)
    return bool(numeric(_full(option, said)) != numeric(_full(option, value)))


def _full(option: str, value: Any) -> Any:
    """Return the value of an option, a device or a kind of link by its name in the table, however it is spelt."""
    if option == "device" and value != "auto":
        return _device_name(value)
    return full_name(value) if option.endswith(".link") and isinstance(value, str) else value


def cluster_of(node: Mapping[str, Any], world_size: int | None, device: str) -> Cluster:
    """Return the cluster of a `cluster` node; "auto" becomes what is here, or `world_size` and `device`.

    `world_size` 1 is one device of the cluster, alone: what scaling is measured against. ConfigError when a named
    cluster has another number of devices than `world_size` asks for, or another kind.
    """
    here = node["device"] == "auto"
    kind = local_device(device) if here else _device_name(node["device"])
    nodes, per_node = _count("nodes", node["nodes"]), node["devices_per_node"]
    if per_node == "auto":
        per_node = _share(world_size, nodes) if world_size else local_ranks(kind)
    try:
        links = {key: _link(key, node[key], kind) for key in ("intra", "inter")}
        busbw, small_us, call_ms, message_us, host_us = (_given(name, node.get(name)) for name in MEASURABLE)
        nics = node["nics_per_node"]
        if nics == "auto":
            nics = usual_nics(kind, links["inter"], _count("devices_per_node", per_node))
        cluster = Cluster(
            node["name"],
            node["summary"],
            nodes,
            _count("devices_per_node", per_node),
            kind,
            links["intra"],
            links["inter"],
            node["source"],
            _count("nics_per_node", nics),
            _factors(node.get("factors")),
            node["calibration"],
            node.get("codec_times") or "",
            busbw,
            small_us,
            call_ms,
            message_us,
            host_us,
            tables=tables_of(node.get("exchanges")),
        )
    except KeyError as error:
        raise ConfigError(
            f"cluster={node['name']}: a link is a list of gbps, efficiency and latency_s, or of link=KIND ({error})"
        ) from None
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


def usual_nics(device: str, link: Link, devices_per_node: int) -> int:
    """Return how many network cards a node of such devices usually has, where the link is that of one card.

    One a GPU in HGX and DGX nodes from A100 on (8 x 200G in DGX A100, 8 x 400G in DGX H100, H200 and B200), four
    100G EDR in DGX-1 of V100, by NVIDIA's data sheets; one where the network is Ethernet without RDMA, or slower.
    """
    family = device.partition("_")[0]
    if link.rdma and family in ("a100", "h100", "h200", "b200") and link.gbps >= (200 if family == "a100" else 400):
        return devices_per_node
    if link.rdma and family == "v100" and link.gbps >= 100:
        return max(1, devices_per_node // 2)
    return 1


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


def _count(key: str, value: Any) -> int:
    count = whole(value)
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ConfigError(f"cluster.{key} must be a whole number of at least 1, got {value!r}")
    return count


def _share(world_size: int, nodes: int) -> int:
    """Return the ranks of each node; one rank is alone, wherever it is."""
    if world_size > 1 and world_size % nodes:
        raise ConfigError(
            f"world_size={world_size} cannot be spread evenly over cluster.nodes={nodes}; use "
            f"world_size={nodes * max(1, round(world_size / nodes))}"
        )
    return max(1, world_size // nodes)


def _given(name: str, value: Any) -> float | None:
    return None if value is None else _number(name, value)


def _link(key: str, node: Mapping[str, Any], on: str) -> Link:
    try:
        numbers = {name: _number(f"{key}.{name}", value) for name, value in node.items() if name != "link"}
        for name in ("gbps", "latency_s"):
            if name in numbers:
                plausible("inter.gbps" if (key, name) == ("inter", "gbps") else name, numbers[name], name)
        if kind := node.get("link"):
            if key == "inter" and full_name(str(kind)).startswith(FAMILIES):
                raise ConfigError(
                    f"{kind} joins devices of one node; write cluster.inside={kind} with cluster.nodes=1, or a link of "
                    "ssfx list links"
                )
            return Link.of_kind(str(kind), on, **numbers)
        return Link(numbers.pop("gbps"), numbers.pop("efficiency"), numbers.pop("latency_s"), **numbers)  # type: ignore[arg-type]
    except ConfigError as error:
        if str(error).startswith("cluster."):
            raise
        named = str(error).startswith(("gbps", "latency_s", "efficiency", "switch_efficiency"))
        said = str(error)
        if key == "intra":  # what is said of kinds is about links between nodes
            said = said.replace("cluster.inter.", "cluster.intra.").replace("cluster.link=", "cluster.inside=")
        what = f"cluster.{key}.{said}" if named else f"cluster.{key}: {said}"
        raise ConfigError(what) from None


def _number(key: str, value: Any) -> float:
    """Return a number of a cluster's file, which may be in quotes; `rdma` is true or false."""
    number = numeric(value)
    if isinstance(number, int | float) and (key.endswith(".rdma") or not isinstance(number, bool)):
        try:
            return float(number)
        except OverflowError:
            pass
    raise ConfigError(f"cluster.{key} must be a number, got {value!r}{as_number(value, key)}")


def _factors(said: Any) -> dict[str, float]:
    if not isinstance(said or {}, Mapping):
        raise ConfigError(f"cluster.factors must hold primitive: number lines, got {said!r}")
    return {str(name): _number(f"factors.{name}", value) for name, value in (said or {}).items()}


def _device_name(value: Any) -> str:
    if not isinstance(value, str):
        meant = [one for one in devices.device_names() if one.endswith(str(value))]
        if meant or not isinstance(value, int):
            hint = f"; did you mean {' or '.join(meant)}?" if meant else ""
            raise ConfigError(f"cluster.device must be the name of a device, got {value!r}{hint}")
    return devices.device(str(value)).name
