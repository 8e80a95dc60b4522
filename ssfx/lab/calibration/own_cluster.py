"""The user's own nodes as a cluster file: collectives of all sizes among all ranks, all-reduces inside nodes.

Every rank that torchrun started runs `main`; rank 0 writes the file, which `cluster=FILE` takes.
"""

import argparse
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist

from ssfx.core import accelerator
from ssfx.core.errors import ConfigError, SsfxError
from ssfx.core.files import write_atomic
from ssfx.perf_model import devices
from ssfx.perf_model.exchange_tables import ExchangeTable, exchange_lines

HOW = "torchrun --nproc-per-node RANKS -m ssfx.lab.profile_network --out cluster.yaml"
LARGE_MIB = 64
STEP = 4
"""Each size of the sweep is so many times the one before."""
_CALLS = 10
_TIMEOUT_S = 120
_SMALL_NUMEL = 1


@dataclass(frozen=True)
class Rate:
    """What all-reduces among some ranks take: the bus bandwidth of a large one, and the seconds of a small one."""

    gbps: float
    small_s: float
    ranks: int

    @property
    def latency_s(self) -> float:
        """Seconds of one message, as a ring of so many ranks needs 2 (ranks - 1) of them."""
        return self.small_s / (2 * (self.ranks - 1))


@dataclass(frozen=True)
class NodeGroups:
    """The measured cluster: `inside` is None with one rank a node, `everyone` is of all ranks."""

    nodes: int
    devices_per_node: int
    device: str
    hardware: str
    backend: str
    everyone: Rate
    inside: Rate | None
    large_mib: int
    tables: tuple[ExchangeTable, ...] = ()
    """Of all ranks, by size."""

    def to_yaml(self) -> str:
        """Return the text of a cluster file; numbers of links are what was reached, so that their efficiency is 1."""
        inside = self.inside or self.everyone
        all_us = 1e6 * self.everyone.small_s
        source = (
            f"ssfx.lab.profile_network over {self.backend}, {datetime.now(UTC).date().isoformat()}, {self.hardware}; "
            f"an all-reduce of {self.large_mib} MiB on all ranks at {self.everyone.gbps:.4g} Gbit/s, of 4 bytes in "
            f"{all_us:.4g} us"
        )
        lines = [
            f"summary: {self.nodes} nodes of {self.devices_per_node} {self.device}, measured",
            f"nodes: {self.nodes}", f"devices_per_node: {self.devices_per_node}", f"device: {self.device}",
            "nics_per_node: 1", f"intra: {_link(inside)}", f"inter: {_link(self.everyone, ', rdma: false')}",
            f"small_allreduce_us: {all_us:.4g}", f"source: '{source}'", "calibration: nominal",
        ]  # fmt: skip
        return "\n".join([*lines, *exchange_lines(self.tables)]) + "\n"


def _link(rate: Rate, also: str = "") -> str:
    # Without RDMA an all-reduce along a tree is charged what the bytes of a ring take, which is what was measured.
    return f"{{gbps: {rate.gbps:.4g}, efficiency: 1.0, latency_s: {rate.latency_s:.3e}{also}}}"


def measure_nodes(devices_per_node: int, device: str | None, large_mib: int = LARGE_MIB) -> NodeGroups:
    """Return what the ranks of the default group measured together, equal on all of them.

    `device` names a data sheet; None: the one that the GPUs' name fits. ConfigError where none fits, or where nodes
    have different numbers of ranks.
    """
    world, rank = dist.get_world_size(), dist.get_rank()
    if world == 1:
        raise ConfigError(f"one rank exchanges nothing; start more: {HOW}")
    counts = _gathered(devices_per_node)
    if len(set(counts)) > 1:
        raise ConfigError(f"nodes have {min(counts)} to {max(counts)} ranks; start the same number on each")
    on_gpu = dist.get_backend() == "nccl"
    where = accelerator.in_use("cuda" if on_gpu else "cpu")
    name = accelerator.name(where) if on_gpu else "cpu"
    sheet = device or sheet_of(name)
    everyone = _rate(None, world, where, large_mib)
    inside = None
    if 1 < devices_per_node < world:
        starts = range(0, world, devices_per_node)
        groups = [dist.new_group(list(range(start, start + devices_per_node))) for start in starts]
        inside = _rate(groups[rank // devices_per_node], devices_per_node, where, large_mib)
    tables = exchange_tables(world, devices_per_node, where, large_mib, dist.get_backend())
    return NodeGroups(
        world // devices_per_node, devices_per_node, sheet, name if on_gpu else platform.machine(),
        dist.get_backend(), everyone, inside, large_mib, tables,
    )  # fmt: skip


def sheet_of(name: str) -> str:
    """Return the data sheet that a device's own name fits; ConfigError with what to type for one that none does."""
    if name == "cpu":
        return "cpu"
    found = devices.sheet_named(name)
    if found is None:
        sheets = "|".join(sheet for sheet in devices.device_names() if sheet != "cpu")
        raise ConfigError(f"no data sheet is known of {name}; name the nearest by --device {sheets}")
    return found


def exchange_tables(
    world: int, per_node: int, where: torch.device, large_mib: int, backend: str
) -> tuple[ExchangeTable, ...]:
    """Return what collectives among all ranks take from a few bytes up, as nccl-tests counts them."""
    library = accelerator.transport_version(backend)
    source = f"ssfx.lab.profile_network, {datetime.now(UTC).date().isoformat()}"
    tables = []
    for name, call in _COLLECTIVES.items():
        sizes, us, nbytes = [], [], 4 * world
        while nbytes <= large_mib * 2**20:
            data = torch.zeros(nbytes // 4, dtype=torch.float32, device=where)
            sizes.append(nbytes)
            us.append(1e6 * _seconds(partial(call, data), where))
            nbytes *= STEP
        tables.append(ExchangeTable(name, world, per_node, tuple(sizes), tuple(us), library, source))
    return tuple(tables)


def _gather(data: torch.Tensor) -> None:
    dist.all_gather_into_tensor(data, data.chunk(dist.get_world_size())[dist.get_rank()])


def _to_all(data: torch.Tensor) -> None:
    dist.all_to_all_single(torch.empty_like(data), data)


_COLLECTIVES: Mapping[str, Callable[[torch.Tensor], object]] = {
    "all_reduce": dist.all_reduce, "all_gather": _gather, "alltoall": _to_all,
}  # fmt: skip
"""What is swept, by sizes of the whole: what a rank contributes, or of all_gather receives."""


def _rate(group: Any, ranks: int, where: torch.device, large_mib: int) -> Rate:
    small = torch.zeros(_SMALL_NUMEL, dtype=torch.float32, device=where)
    small_s = _seconds(partial(dist.all_reduce, small, group=group), where)
    large = torch.zeros(large_mib * 2**18, dtype=torch.float32, device=where)
    seconds = _seconds(partial(dist.all_reduce, large, group=group), where)
    bits = 8 * large.numel() * large.element_size()
    return Rate(2 * (ranks - 1) / ranks * bits / seconds / 1e9, small_s, ranks)


def _seconds(call: Callable[[], object], where: torch.device) -> float:
    """Return the median seconds of a collective on the slowest rank of all, after two that do not count."""
    times = []
    for _ in range(_CALLS + 2):
        call()
        accelerator.wait(where)
        began = perf_counter()
        call()
        accelerator.wait(where)
        times.append(perf_counter() - began)
    slowest = torch.tensor([median(times[2:])], dtype=torch.float64, device=where)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return float(slowest)


def _gathered(value: int) -> list[int]:
    found: list[int | None] = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return [one for one in found if one is not None]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, write the file on rank 0, and say what to type next; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m ssfx.lab.profile_network", description=f"{__doc__} {HOW}")
    parser.add_argument("--out", type=Path, default=Path("cluster.yaml"), help="file to write (cluster.yaml)")
    parser.add_argument("--device", choices=devices.device_names(), help="data sheet of the devices, if none is found")
    parser.add_argument("--mib", type=int, default=LARGE_MIB, help=f"MiB of the large all-reduce ({LARGE_MIB})")
    asked = parser.parse_args(argv)
    try:
        if "RANK" not in os.environ:
            raise ConfigError(f"it measures between the ranks that torchrun starts: {HOW}")
        if asked.mib < 1:
            raise ConfigError(f"--mib must be at least 1, got {asked.mib}")
        local = int(os.environ.get("LOCAL_RANK", "0"))
        kind = "cuda" if accelerator.count("cuda") else "cpu"
        accelerator.use(kind, local)
        dist.init_process_group(accelerator.transport(kind), timeout=timedelta(seconds=_TIMEOUT_S))
        try:
            found = measure_nodes(int(os.environ.get("LOCAL_WORLD_SIZE", "1")), asked.device, asked.mib)
            if dist.get_rank() == 0:
                _tell(found, asked.out)
            dist.barrier()
        finally:
            dist.destroy_process_group()
    except (SsfxError, OSError) as error:
        if os.environ.get("RANK", "0") == "0":
            print(f"ssfx.lab.profile_network: {error}", file=sys.stderr)
        return getattr(error, "exit_code", 1)
    return 0


def _tell(found: NodeGroups, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, found.to_yaml())
    print(f"{found.nodes} nodes of {found.devices_per_node} {found.device} ({found.hardware}), {found.backend}")
    for name, rate in (("all ranks", found.everyone), ("inside a node", found.inside)):
        if rate is not None:
            print(f"{name:14} {rate.gbps:9.2f} Gbit/s bus bandwidth, {1e6 * rate.small_s:9.1f} us for 4 bytes")
    print(f"{path}\nNext: ssfx advise model=resnet50 cluster={path}, or profile=FILE for a model of your own")
