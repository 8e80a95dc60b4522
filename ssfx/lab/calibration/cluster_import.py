"""Files that people have of a cluster, as the text of a cluster file: logs of exchanges."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from ssfx.core.errors import ConfigError
from ssfx.core.files import DAMAGED, loads
from ssfx.core.yaml_file import read_yaml
from ssfx.lab.calibration.nccl_log import Log, logs_of, looks_like_log
from ssfx.perf_model import devices
from ssfx.perf_model.exchange_tables import ExchangeTable, exchange_lines, sized, tables_of
from ssfx.perf_model.links import link_kind

LARGEST_BYTES = 64 * 2**20
"""A larger file is no log of one test."""
SMALL_BYTES = 2**16
"""A message up to here tells of latency."""
_OF_MODEL = {"all_reduce": "all_reduce", "all_gather": "all_gather", "all_to_all": "alltoall", "send": "sendrecv"}
"""Primitives of a recorded system, and the tables they are."""


@dataclass(frozen=True)
class Imported:
    """The text of a cluster file, and what to know of it."""

    text: str
    tables: tuple[ExchangeTable, ...]
    notes: tuple[str, ...]


@dataclass
class _Files:
    logs: list[tuple[Log, str]] = field(default_factory=list)
    tables: list[ExchangeTable] = field(default_factory=list)
    base: dict[str, Any] = field(default_factory=dict)


def imported(paths: Sequence[Path], *, nodes: int | None = None, device: str = "") -> Imported:
    """Return the cluster that `paths` tell of; ConfigError for what cannot be read or does not fit together.

    `nodes` is of logs that do not say on how many machines they ran, `device` a data sheet where none fits.
    """
    files = _Files()
    for path in paths:
        _read(path, files)
    tables = [*files.tables, *_tables(files.logs, nodes)]
    tables_of([_plain(one) for one in tables])  # no two of the same
    notes = [note for log, _ in files.logs for note in log.notes]
    for one in tables:
        if one.dips:
            sizes = ", ".join(map(sized, one.dips[:3]))
            notes.append(
                f"{one.collective} on {one.ranks} ranks is not monotone: {sizes} takes less than a smaller message"
            )
    sheet = device or _sheet(files)
    if sheet not in devices.device_names():
        devices.device(sheet)
    names = " and ".join(sorted({log.device for log, _ in files.logs if log.device}))
    text, more = cluster_text(tables, sheet, names, _sources(files), files.base, nodes)
    return Imported(text, tuple(tables), (*dict.fromkeys(notes), *more))


def _read(path: Path, files: _Files) -> None:
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise ConfigError(f"{path} has more than {LARGEST_BYTES >> 20} MiB, so it is no log of nccl-tests")
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    text, name = raw.decode("utf-8", "replace").lstrip("\ufeff"), path.name
    where = f"{name} (sha256 {hashlib.sha256(raw).hexdigest()[:12]})"
    if path.suffix in (".yaml", ".yml"):
        node = read_yaml(path)
        files.tables += tables_of(node.get("exchanges"))
        files.base = {**files.base, **node}
    elif '"world_size"' in text and '"exchange"' in text:
        files.tables += _of_model(text, name, where)
    elif looks_like_log(text):
        files.logs += [(log, where) for log in logs_of(text, name)]
    else:
        raise ConfigError(
            f"{name} is of no kind that is read: what nccl-tests or rccl-tests print as text, or what ssfx profile "
            "network wrote"
        )


def _of_model(text: str, name: str, where: str) -> list[ExchangeTable]:
    """Return the tables of a system that `ssfx profile network` recorded, one rank on each of its hosts."""
    try:
        found = loads(text)
        ranks, curves, hosts = found["world_size"], found["exchange"], str(found["name"])
        per_node = 1 if hosts.startswith("emulated_") else ranks
        tables = []
        for primitive, collective in _OF_MODEL.items():
            curve = curves.get(primitive)
            if curve and len(curve["sizes"]) > 1 and not curve.get("unbounded"):
                parts = ranks if collective == "all_gather" else 1
                sizes = tuple(round(parts * size) for size in curve["sizes"])
                us = tuple(1e6 * value for value in curve["seconds"])
                tables.append(ExchangeTable(collective, ranks, per_node, sizes, us, "gloo", where))
    except DAMAGED as error:
        raise ConfigError(f"{name} is no system of ssfx profile network: {error!r}") from None
    if not tables:
        raise ConfigError(f"{name} has no measured exchanges")
    return tables


def _tables(logs: Sequence[tuple[Log, str]], nodes: int | None) -> list[ExchangeTable]:
    """Return a table of each collective and number of ranks; of several logs of one, the median of each size."""
    groups: dict[tuple[str, int, int], list[tuple[Log, str]]] = {}
    for log, where in logs:
        per_node = log.ranks_per_node or (log.ranks // nodes if nodes and log.ranks % nodes == 0 else 0)
        if not per_node:
            raise ConfigError(f"{where} does not say on how many machines its {log.ranks} ranks ran; add --nodes N")
        groups.setdefault((log.collective, log.ranks, per_node), []).append((log, where))
    tables = []
    for (collective, ranks, per_node), members in groups.items():
        points: dict[int, list[float]] = {}
        for log, _ in members:
            for size, us in log.points():
                points.setdefault(size, []).append(us)
        sizes = tuple(sorted(points))
        kinds = dict.fromkeys(log.library for log, _ in members if log.library)
        tables.append(
            ExchangeTable(
                collective,
                ranks,
                per_node,
                sizes,
                tuple(median(points[size]) for size in sizes),
                " and ".join(kinds),
                ", ".join(dict.fromkeys(where for _, where in members)),
            )
        )
    return tables


def _sheet(files: _Files) -> str:
    """Return the data sheet of the devices; ConfigError with what to type where none fits, or several do."""
    if files.base.get("device"):
        return str(files.base["device"])
    names = {log.device for log, _ in files.logs if log.device}
    if not names and all(table.library == "gloo" for table in files.tables) and files.tables:
        return "cpu"
    fitting = {devices.sheet_named(name) for name in names}
    sheets = "|".join(name for name in devices.device_names() if name != "cpu")
    if len(fitting) != 1 or None in fitting:
        what = f"no data sheet is known of {' and '.join(sorted(names))}" if names else "no file names the devices"
        raise ConfigError(f"{what}; name the nearest by --device {sheets}")
    return str(fitting.pop())


def _sources(files: _Files) -> str:
    listed = dict.fromkeys(where for _, where in files.logs)
    own = [str(files.base["source"])] if files.base.get("source") else []
    return ", ".join((*own, *dict.fromkeys(t.source for t in files.tables if t.source), *listed)) or "given by hand"


def _plain(table: ExchangeTable) -> dict[str, Any]:
    return {
        "collective": table.collective,
        "ranks": table.ranks,
        "ranks_per_node": table.ranks_per_node,
        "bytes": list(table.nbytes),
        "us": list(table.us),
    }


def cluster_text(
    tables: Sequence[ExchangeTable],
    sheet: str,
    names: str,
    source: str,
    base: Mapping[str, Any] = {},
    asked: int | None = None,
) -> tuple[str, list[str]]:
    """Return the text of the cluster file, and what in it is an assumption.

    `names`: what the devices call themselves. `base`: what another file says, `asked`: how many nodes, without tables.
    """
    main = max(tables, key=lambda one: (one.ranks, one.collective == "all_reduce"), default=None)
    per_node = main.ranks_per_node if main else base.get("devices_per_node")
    nodes = main.ranks // main.ranks_per_node if main else asked or base.get("nodes")
    if not isinstance(per_node, int) or not isinstance(nodes, int):
        raise ConfigError("no file says how many nodes of how many devices; add --nodes N, or the log of a test")
    notes: list[str] = []
    intra, inter, nics = _links(tables, sheet, names, nodes, per_node, notes)
    small = next((one for one in tables if one is main and one.collective == "all_reduce"), None)
    lines = [
        f"summary: {f'{nodes} nodes of ' if nodes > 1 else ''}{per_node} {sheet}, measured exchanges",
        f"nodes: {nodes}",
        f"devices_per_node: {per_node}",
        f"device: {sheet}",
        f"nics_per_node: {nics}",
        f"intra: {intra}",
        f"inter: {inter}",
    ]
    if small and small.nbytes[0] <= SMALL_BYTES:
        lines.append(f"small_allreduce_us: {small.us[0]:.6g}")
    lines += [f"source: {json.dumps(source)}", "calibration: nominal"]
    lines += exchange_lines(tables)
    return "\n".join(lines) + "\n", notes


def _links(
    tables: Sequence[ExchangeTable], sheet: str, names: str, nodes: int, per_node: int, notes: list[str]
) -> tuple[str, str, int]:
    """Return both links and the cards of a node as YAML: what was reached if it was measured, else kinds of links."""
    inside = _best(tables, per_node, per_node) if per_node > 1 else None
    across = _best(tables, nodes * per_node, per_node) if nodes > 1 else None
    if inside is not None:
        intra = _link(inside)
    else:
        family, why = _assumed(sheet, names, across)
        intra = f"{{link: {family}}}"
        if per_node > 1:
            notes.append(f"inside a node {family} is assumed, {why}; a log of one node would tell")
    if across is not None:
        # The cards of a node together reach what the ring passes; nothing tells of one card alone.
        return intra, _link(across, ", rdma: false"), 1
    if nodes > 1:
        raise ConfigError("no file tells of the network between nodes; import a log of several nodes")
    return intra, intra, 1


def _assumed(sheet: str, names: str, across: ExchangeTable | None) -> tuple[str, str]:
    """Return the family of links inside a node that no file tells of, and why."""
    families = devices.device(sheet).inside
    if "nvlink" in families and any(word in names for word in ("SXM", "HBM3")):
        return "nvlink", f"as {names} has it"
    if "nvlink" in families and across and across.busbw_gbps > link_kind("pcie", sheet)["gbps"]:
        return "nvlink", "as a ring of all nodes is faster than PCIe"
    return "pcie", "as no file tells of it"


def _best(tables: Sequence[ExchangeTable], ranks: int, per_node: int) -> ExchangeTable | None:
    here = [one for one in tables if (one.ranks, one.ranks_per_node) == (ranks, per_node)]
    order = ("all_reduce", "all_gather", "reduce_scatter", "sendrecv", "alltoall")
    return min(here, key=lambda one: order.index(one.collective), default=None)


def _link(table: ExchangeTable, also: str = "") -> str:
    """Return what a table reached as a link: its best rate, and its least time by the messages of a ring."""
    steps = 2 * (table.ranks - 1) if table.collective == "all_reduce" else table.ranks - 1
    latency_s = 1e-6 * table.us[0] / max(1, steps)
    return f"{{gbps: {table.busbw_gbps:.4g}, efficiency: 1.0, latency_s: {min(latency_s, 1.0):.3e}{also}}}"
