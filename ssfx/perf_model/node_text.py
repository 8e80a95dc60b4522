"""What nvidia-smi, Slurm and ibstat print of nodes: devices, cards and the links between them, but no times."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ssfx.core.errors import ConfigError

_ROW = re.compile(r"^\s*GPU(\d+)\s+(.*)$")
_LINKS = re.compile(r"^(?:X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC)$")
_FIELD = re.compile(r"(\w[\w/:]*)=(\S*)")
_GPUS = re.compile(r"gpu(?::(?P<kind>[A-Za-z][\w.-]*))?[:=](?P<count>\d+)")
_MOST = 10**5


@dataclass(frozen=True)
class NodeText:
    """What a text says of a node and of the cluster; None and "" for what it does not say."""

    devices_per_node: int | None = None
    nodes: int | None = None
    device: str = ""
    """The device's own name, or how Slurm calls it."""
    inside: str = ""
    """"nvlink" where all devices of a node reach one another so, "pcie" where they do not."""
    nics: int | None = None
    link: str = ""
    """A kind of link (`links.json`) between nodes."""
    note: str = ""


def node_text(text: str, name: str) -> NodeText | None:
    """Return what `text` says of nodes, None where it is of no kind that is read; ConfigError for a broken one."""
    if re.search(r"^\s*GPU0\s", text, re.MULTILINE) and "[" not in text.split("GPU0", 1)[0][-3:]:
        return _topo(text, name)
    if "NodeName=" in text:
        return _nodes(text, name)
    if "PartitionName=" in text:
        return _partition(text, name)
    if re.search(r"^CA '", text, re.MULTILINE) and "Rate:" in text:
        return _ibstat(text, name)
    return None


def _topo(text: str, name: str) -> NodeText:
    """Return what `nvidia-smi topo -m` says: a row and a column for each GPU, a column for each card."""
    rows = {int(m[1]): m[2].split() for line in text.splitlines() if (m := _ROW.match(line)) and "X" in m[2].split()}
    count = len(rows)
    if sorted(rows) != list(range(count)) or any(
        len(row) < count or row[i] != "X" or not all(map(_LINKS.match, row[:count])) for i, row in rows.items()
    ):
        raise ConfigError(
            f"{name} is no whole table of nvidia-smi topo -m: {count} rows of GPUs do not fit its columns"
        )
    links = {row[j] for i, row in rows.items() for j in range(count) if i != j}
    cards = set(re.findall(r"\b(?:NIC\d+|mlx\d_\d+)\b", text.split("Legend", 1)[0]))
    named = set(re.findall(r"NIC\d+: (\S+)", text))
    inside = "" if count == 1 else "nvlink" if all(link.startswith("NV") for link in links) else "pcie"
    nics = len(named or cards) or None
    return NodeText(devices_per_node=count, inside=inside, nics=nics, note=f"{', '.join(sorted(links)) or 'one GPU'}")


def _records(text: str, key: str) -> list[dict[str, str]]:
    parts = re.split(rf"(?=\b{key}=)", text)
    return [dict(_FIELD.findall(part)) for part in parts if part.startswith(f"{key}=")]


def _gpus(said: str, name: str) -> tuple[int, str]:
    found = _GPUS.findall(said)
    if not found:
        raise ConfigError(
            f"{name} says of no GPU (Gres=gpu:NAME:COUNT); use cluster.devices_per_node and cluster.device"
        )
    kind, count = max(found, key=lambda one: bool(one[0]))
    return int(count) if len(count) < 7 else 0, kind


def _nodes(text: str, name: str) -> NodeText:
    """Return what `scontrol show node` says, of all nodes that are alike; ConfigError where they are not."""
    records = _records(text, "NodeName")
    shapes = {_gpus(one.get("Gres", "") + " " + one.get("CfgTRES", ""), name) for one in records}
    if len(shapes) != 1:
        raise ConfigError(f"{name} has nodes of {len(shapes)} kinds; show those of one kind: scontrol show node NAMES")
    ((count, kind),) = shapes
    if not 0 < count < _MOST:
        raise ConfigError(f"{name} says that a node has {count} GPUs")
    return NodeText(devices_per_node=count, nodes=len(records), device=kind, note=f"{len(records)} nodes")


def _partition(text: str, name: str) -> NodeText:
    """Return what `scontrol show partition` says: nodes, and GPUs of all of them."""
    records = _records(text, "PartitionName")
    if len(records) != 1:
        raise ConfigError(f"{name} has {len(records)} partitions; show one: scontrol show partition NAME")
    nodes = records[0].get("TotalNodes", "")
    gpus, kind = _gpus(" ".join(records[0].get(key, "") for key in ("TRES", "Gres")) or text, name)
    if not nodes.isdecimal() or not 0 < int(nodes) < _MOST or gpus < 1 or gpus % int(nodes):
        raise ConfigError(f"{name} has {gpus} GPUs on TotalNodes={nodes or '?'}, which is no number for each node")
    return NodeText(devices_per_node=gpus // int(nodes), nodes=int(nodes), device=kind, note=f"{nodes} nodes")


_IB: Mapping[int, str] = {100: "ib_rdma_100", 200: "ib_rdma_200", 400: "ib_rdma_400"}


def _ibstat(text: str, name: str) -> NodeText:
    """Return what `ibstat` says: active ports and their rate; a kind of link where all are InfiniBand of one rate."""
    ports = re.findall(r"State:\s*(\w+).*?Rate:\s*(\d+).*?Link layer:\s*(\w+)", text, re.DOTALL)
    active = [(int(rate), layer) for state, rate, layer in ports if state == "Active" and len(rate) < 6]
    if not active:
        raise ConfigError(f"{name} has no active port")
    rates = {rate for rate, layer in active if layer == "InfiniBand"}
    link = _IB.get(next(iter(rates)), "") if len(rates) == 1 else ""
    said = ", ".join(sorted({f"{rate} Gbit/s {layer}" for rate, layer in active}))
    count = sum(layer == "InfiniBand" for _, layer in active) or len(active)
    return NodeText(nics=count, link=link, note=f"{len(active)} active ports, {said}")
