"""The user's own nodes as a cluster file: collectives of all sizes among all ranks, all-reduces inside nodes.

Every rank that torchrun started runs `main`; rank 0 writes the file, which `cluster=FILE` takes.
"""

import argparse
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
import torch.distributed as dist

from ssfx.core import accelerator
from ssfx.core.errors import ConfigError, SsfxError
from ssfx.core.files import write_atomic
from ssfx.lab.calibration.cluster_import import cluster_text
from ssfx.perf_model import devices
from ssfx.perf_model.exchange_tables import ExchangeTable, sized

HOW = "torchrun --nproc-per-node RANKS -m ssfx.lab.profile_network --out cluster.yaml"
LARGE_MIB = 64
STEP = 4
"""Each size of the sweep is so many times the one before."""
_CALLS = 10
_TIMEOUT_S = 120


def measure_nodes(devices_per_node: int, device: str | None, large_mib: int = LARGE_MIB) -> tuple[str, list[str]]:
    """Return the cluster file of what the ranks of the default group measured together, and lines for people.

    `device` names a data sheet; None: the one that the GPUs' name fits. ConfigError where none fits, or where nodes
    have different numbers of ranks.
    """
    world, rank = dist.get_world_size(), dist.get_rank()
    if world == 1:
        raise ConfigError(f"one rank exchanges nothing; start more: {HOW}")
    counts = [0] * world
    dist.all_gather_object(counts, devices_per_node)
    if len(set(counts)) > 1:
        raise ConfigError(f"nodes have {min(counts)} to {max(counts)} ranks; start the same number on each")
    on_gpu = dist.get_backend() == "nccl"
    where = accelerator.in_use("cuda" if on_gpu else "cpu")
    name = accelerator.name(where) if on_gpu else platform.machine()
    sheet = device or sheet_of(name if on_gpu else "cpu")
    backend = dist.get_backend()
    tables = exchange_tables(world, devices_per_node, where, large_mib, backend)
    said = [
        f"{world // devices_per_node} nodes of {devices_per_node} {sheet} ({name}), {backend}",
        _line("all ranks", tables[0]),
    ]
    if 1 < devices_per_node < world:
        starts = range(0, world, devices_per_node)
        groups = [dist.new_group(list(range(start, start + devices_per_node))) for start in starts]
        inside = partial(dist.all_reduce, group=groups[rank // devices_per_node])
        tables += (_table("all_reduce", inside, devices_per_node, devices_per_node, where, large_mib, backend),)
        said.append(_line("inside a node", tables[-1]))
    text, notes = cluster_text(tables, sheet, name, f"{tables[0].source} over {backend}, {name}")
    return text, [*said, *notes]


def _line(what: str, table: ExchangeTable) -> str:
    small, least_us = sized(table.nbytes[0]), table.us[0]
    return f"{what:14} {table.busbw_gbps:9.2f} Gbit/s bus bandwidth, {least_us:9.1f} us for {small}"


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
    return tuple(_table(name, call, world, per_node, where, large_mib, backend) for name, call in _COLLECTIVES.items())


def _table(
    name: str,
    call: Callable[[torch.Tensor], object],
    ranks: int,
    per_node: int,
    where: torch.device,
    large_mib: int,
    backend: str,
) -> ExchangeTable:
    sizes, us, nbytes = [], [], 4 * ranks
    while nbytes <= large_mib * 2**20:
        data = torch.zeros(nbytes // 4, dtype=torch.float32, device=where)
        sizes.append(nbytes)
        us.append(1e6 * _seconds(partial(call, data), where))
        nbytes *= STEP
    source = f"ssfx.lab.profile_network, {datetime.now(UTC).date().isoformat()}"
    library = accelerator.transport_version(backend)
    return ExchangeTable(name, ranks, per_node, tuple(sizes), tuple(us), library, source)


def _gather(data: torch.Tensor) -> None:
    dist.all_gather_into_tensor(data, data.chunk(dist.get_world_size())[dist.get_rank()])


def _to_all(data: torch.Tensor) -> None:
    dist.all_to_all_single(torch.empty_like(data), data)


_COLLECTIVES: Mapping[str, Callable[[torch.Tensor], object]] = {
    "all_reduce": dist.all_reduce,
    "all_gather": _gather,
    "alltoall": _to_all,
}
"""What is swept, by sizes of the whole: what a rank contributes, or of all_gather receives."""


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
            text, said = measure_nodes(int(os.environ.get("LOCAL_WORLD_SIZE", "1")), asked.device, asked.mib)
            if dist.get_rank() == 0:
                asked.out.parent.mkdir(parents=True, exist_ok=True)
                write_atomic(asked.out, text)
                next_ = f"Next: ssfx advise model=resnet50 cluster={asked.out}, or profile=FILE for a model of your own"
                print(*said, asked.out, next_, sep="\n")
            dist.barrier()
        finally:
            dist.destroy_process_group()
    except (SsfxError, OSError) as error:
        if os.environ.get("RANK", "0") == "0":
            print(f"ssfx.lab.profile_network: {error}", file=sys.stderr)
        return getattr(error, "exit_code", 1)
    return 0
