"""Time the CUDA kernels on this machine's GPU, as multiples of one device copy of the same vector.

    python benchmarks/gpu_kernels.py [--density 0.01] [--json FILE]

One bucket of tensors of 2^20 elements, Laplace-distributed gradients, residual memory. Operations of one size are
interleaved and their medians compared; times lie between two events on the device, so they include its waiting for the
host where the host is slower; FILE also has the time of every kernel. Every operation runs once with PyTorch's check
for waits on the device set to raise. Without a GPU it says so and exits with 2.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from ssfx.compressors import Layout, Payload, build, k_floor
from ssfx.compressors.batch import Batch, Part, Starts
from ssfx.compressors.kernels import Rule
from ssfx.compressors.memories import memories
from ssfx.compressors.topk import exactly
from ssfx.lab.results.manifest import code, describe, hardware, now, versions

SIZES = (1_000_000, 10_000_000, 100_000_000)
TENSOR = 1 << 20
ROUNDS = 50
WARM_UP = 3
Operation = Callable[[], object]


@dataclass
class Bucket:
    """A batch whose gradients are put back before every step, and thresholds near the ones that `topk` finds."""

    batch: Batch
    grads: list[torch.Tensor]
    rule: Rule
    thresholds: torch.Tensor

    def ready(self) -> Batch:
        self.batch.grads = list(self.grads)
        return self.batch


def bucket(numel: int, density: float) -> Bucket:
    """Return a bucket of `numel` elements on the device."""
    compressor, memory = build("topk"), memories.build("residual")
    uniform = torch.rand(numel, device="cuda") - 0.5
    gradient = -1e-3 * uniform.sign() * torch.log1p(-1.999 * uniform.abs())
    parts, at = [], Starts()
    for lo in range(0, numel, TENSOR):
        hi = min(lo + TENSOR, numel)
        layout = compressor.layout(hi - lo, density)
        parts.append(Part(lo, hi, layout, density, tensor_id=len(parts), starts=at, pieces=((lo, hi),)))
        at = Starts(indices=at.indices + layout.indices, values=at.values + layout.values)
    total = Layout(indices=at.indices, values=at.values)
    state = {name: torch.zeros(numel, device="cuda") for name in memory.buffers}
    new = {name: torch.zeros(numel, device="cuda") for name in memory.buffers}
    batch = Batch(tuple(parts), Payload.allocate(total, "cuda"), new, state, memory)
    found = [gradient[part.lo : part.hi].abs().topk(k_floor(part.numel, density)).values[-1] for part in parts]
    grads = [gradient[part.lo : part.hi] for part in parts]
    return Bucket(batch, grads, exactly(batch), torch.stack(found))


def operations(numel: int, density: float) -> dict[str, Operation]:
    """Return what is timed for one size, by row name; the first is the copy."""
    from ssfx.compressors.kernels.triton import backend as cuda

    made, given = bucket(numel, density), bucket(numel, density)
    vector, target = torch.randn(numel, device="cuda"), torch.empty(numel, device="cuda")
    loose = Rule(tuple(bound._replace(least=0) for bound in made.rule.bounds))
    return {
        "copy": lambda: target.copy_(vector),
        "accumulate with torch, one call per tensor": lambda: made.ready().accumulate(),
        "torch.topk of the whole vector": lambda: torch.topk(vector.abs(), k_floor(numel, density), sorted=False),
        "accumulate + exact top-k": lambda: cuda.select(made.ready(), made.rule),
        "accumulate + given thresholds": lambda: cuda.select(given.ready(), loose, given.thresholds),
        "accumulate + moments": lambda: cuda.moments(made.ready()),
        "count": lambda: cuda.count(made.batch, made.thresholds),
        "tail": lambda: cuda.tail(made.batch, made.thresholds),
    }


def medians(timed: dict[str, Operation]) -> dict[str, float]:
    """Return the median seconds of each operation on the device over interleaved rounds, after a warm-up."""
    for _ in range(WARM_UP):
        for run in timed.values():
            run()
    spans: dict[str, list[tuple[Any, Any]]] = {name: [] for name in timed}
    for _ in range(ROUNDS):
        for name, run in timed.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            start.record()
            run()
            end.record()
            spans[name].append((start, end))
    torch.cuda.synchronize()
    return {name: median(start.elapsed_time(end) / 1e3 for start, end in found) for name, found in spans.items()}


def kernels(run: Operation) -> dict[str, float]:
    """Return what one call queues on the device, copies included, and the seconds that each kind takes."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        run()
        torch.cuda.synchronize()
    found: dict[str, float] = {}
    for number, event in enumerate(e for e in profiled.events() if e.device_type == DeviceType.CUDA):
        found[f"{number:02d} {event.name}"] = event.device_time / 1e6
    return found


def never_waits(timed: dict[str, Operation]) -> None:
    """Raise RuntimeError if one of our operations waits for the device."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        for run in timed.values():
            run()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@click.command()
@click.option(
    "--density", type=click.FloatRange(0, 1, min_open=True), default=0.01, show_default=True, help="kept fraction"
)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="also write rows and the manifest to FILE")
def main(density: float, json_file: Path | None) -> None:
    """Print the table, in multiples of one copy."""
    if not torch.cuda.is_available():
        click.echo("no GPU here: benchmarks/gpu_kernels.py needs one that PyTorch can use", err=True)
        sys.exit(2)
    machine = {**hardware(), "gpus": [torch.cuda.get_device_name()]}
    started, rows = now(), []
    for numel in track(SIZES, "timing", console=Console(stderr=True)):
        timed = operations(numel, density)
        seconds = medians(timed)
        never_waits(timed)
        for name, run in timed.items():
            queued = kernels(run)
            rows.append(
                {
                    "operation": name,
                    "numel": numel,
                    "density": density,
                    "seconds": seconds[name],
                    "copies": seconds[name] / seconds["copy"],
                    "launches": len(queued),
                    "kernels": queued,
                }
            )
    show(rows, describe(machine))
    if json_file:
        manifest = {"code": code(), "hardware": machine, "versions": versions(), "cuda": torch.version.cuda}
        record = {"manifest": {**manifest, "started": started, "stopped": now()}, "rows": rows}
        json_file.write_text(json.dumps(record, indent=1) + "\n")


def show(rows: list[dict[str, Any]], machine: str) -> None:
    table = Table(title=f"multiples of one device copy, density {rows[0]['density']:g}", caption=machine)
    table.add_column("operation")
    for numel in SIZES:
        table.add_column(f"n = {numel:,}", justify="right")
    table.add_column("launches", justify="right")
    copies = {row["numel"]: row["seconds"] for row in rows if row["operation"] == "copy"}
    table.add_row("copy [GB/s]", *(f"{8e-9 * n / copies[n]:.0f}" for n in SIZES), "1", end_section=True)
    for name in dict.fromkeys(row["operation"] for row in rows if row["operation"] != "copy"):
        own = [row for row in rows if row["operation"] == name]
        table.add_row(name, *(f"{row['copies']:.1f}" for row in own), str(own[-1]["launches"]))
    Console().print(table)


if __name__ == "__main__":
    main()
