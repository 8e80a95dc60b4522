"""What gloo's listening thread costs small exchanges, and what it costs them when it does not interrupt other threads.

    python benchmarks/patience.py [--workers 2,4] [--rounds 150] [--json FILE]

Ranks share the cores of this machine as those of `cluster=local` do. Every round makes the same all-reduce in two
groups, one after the other and the other way round in the next: made as torch makes groups, and as ssfx does
(`ssfx.core.machine.patient_threads`). First back to back, then after each rank has computed for some milliseconds, then
eight at once while every rank computes as long. Prints medians and 90th percentiles in milliseconds, and their
ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import quantiles
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist

from ssfx.collectives.comm import new_group
from ssfx.core.machine import share_cores
from ssfx.engines.launch import settings
from ssfx.results.manifest import busy_s, code, describe, hardware, now, versions

SIZES = (1_024, 1_048_576)
TURN_S = 0.008
TOGETHER = 8


def measure(rounds: int) -> list[dict[str, Any]]:
    """Return for each size and situation what both groups took on rank 0, which also prints it."""
    groups = (dist.new_group(), new_group())
    square = torch.randn(300, 300)
    turns = _turns(square)

    def alone(tensor: torch.Tensor, group: object) -> float:
        began = perf_counter()
        dist.all_reduce(tensor, group=group)
        return perf_counter() - began

    def after_computing(tensor: torch.Tensor, group: object) -> float:
        for _ in range(turns):
            square @ square
        return alone(tensor, group)

    def beside_computing(tensor: torch.Tensor, group: object) -> float:
        dist.barrier(group=groups[1])
        began = perf_counter()
        pending = []
        for _ in range(TOGETHER):
            pending.append(dist.all_reduce(tensor.clone(), group=group, async_op=True))
            for _ in range(turns // TOGETHER):
                square @ square
        for work in pending:
            work.wait()
        return perf_counter() - began

    situations = {
        "{size} back to back": alone,
        f"{{size}} after {1e3 * TURN_S:.0f} ms of computing": after_computing,
        f"{TOGETHER} of {{size}} beside as much": beside_computing,
    }
    found = []
    for size in SIZES:
        tensor = torch.zeros(size // 4)
        for situation, call in situations.items():
            found.append(_compare(situation.format(size=f"{size:,} B"), call, tensor, groups, rounds))
    return found


def _turns(square: torch.Tensor) -> int:
    """Return how many products take TURN_S, the same number on all ranks."""
    began, count = perf_counter(), 0
    while perf_counter() - began < 10 * TURN_S:
        square @ square
        count += 1
    agreed = torch.tensor(max(TOGETHER, count // 10))
    dist.all_reduce(agreed, op=dist.ReduceOp.MIN)
    return int(agreed)


def _compare(
    what: str, call: Callable[[torch.Tensor, object], float], tensor: torch.Tensor, groups: tuple[object, ...],
    rounds: int,
) -> dict[str, Any]:  # fmt: skip
    times: tuple[list[float], ...] = ([], [])
    for number in range(rounds):
        for which in (0, 1) if number % 2 else (1, 0):
            times[which].append(1e3 * call(tensor, groups[which]))
    (median, late), (patient_median, patient_late) = ((q[4], q[8]) for q in (quantiles(own, n=10) for own in times))
    if dist.get_rank() == 0:
        print(
            f"{what:36} torch {median:7.2f} ({late:7.2f})  ssfx {patient_median:7.2f} ({patient_late:7.2f})  "
            f"ratio {patient_median / median:5.2f} ({patient_late / late:5.2f})", flush=True,
        )  # fmt: skip
    return {"what": what, "torch_ms": [median, late], "ssfx_ms": [patient_median, patient_late]}


def worker(folder: Path, rank: int, ranks: int, rounds: int) -> None:
    """Be one rank; the first one leaves what it found."""
    torch.set_num_threads(1)
    share_cores(rank, ranks)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=ranks)
    found = measure(rounds)
    if rank == 0:
        (folder / "found").write_text(json.dumps(found))
    dist.barrier()
    os._exit(0)


def compare(ranks: int, rounds: int) -> list[dict[str, Any]]:
    """Start so many ranks and return what the first one found."""
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, __file__, "worker", name]
        environment = {**os.environ, **settings(1, "lo")}
        before = perf_counter(), busy_s(), _children_s()
        started = [
            subprocess.Popen([*command, str(rank), str(ranks), str(rounds)], env=environment) for rank in range(ranks)
        ]
        codes = [process.wait() for process in started]
        if any(codes):
            sys.exit("a rank failed")
        after = perf_counter(), busy_s(), _children_s()
        wall_s, machine_s, own_s = (b - a for a, b in zip(before, after, strict=True))
        found: list[dict[str, Any]] = json.loads(Path(name, "found").read_text())
    busy = max(0.0, (machine_s - own_s) / wall_s)
    return [{"ranks": ranks, "background_cores": busy, **line} for line in found]


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Compare for one number of ranks after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", default="2,4", help="comma list (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=150, help="of each comparison (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="also write what was found to FILE", metavar="FILE")
    options = parser.parse_args()
    print(f"{describe(hardware())}, torch {versions()['torch']}, gloo; median (90th percentile) in ms of rank 0")
    found = []
    for ranks in map(int, options.workers.split(",")):
        print(f"{ranks} ranks", flush=True)
        found += compare(ranks, options.rounds)
    if options.json:
        about = {"date": now(), "hardware": hardware(), "versions": versions(), "code": code()}
        options.json.write_text(json.dumps({**about, "rounds": options.rounds, "found": found}, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        worker(Path(sys.argv[2]), *map(int, sys.argv[3:]))
    else:
        main()
