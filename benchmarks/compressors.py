"""Time every compressor on this machine's CPU, as multiples of one copy of the same buffer, beside torch.topk.

    python benchmarks/compressors.py [--density 0.01] [--json FILE]

One thread and its CPU time, Laplace-distributed data. All operations of one size are interleaved in one run and their
medians compared, because on a shared machine only ratios mean something. "+ memory" adds the accumulation of a gradient
and the update of the memory, which is all that a training step does before the exchange.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import thread_time

import click
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from ssfx.compressors import Compressor, Context, Payload, build, compressors, k_floor
from ssfx.memories import Memory, memories
from ssfx.results.manifest import describe, hardware, versions

SIZES = (2_500, 25_000, 250_000, 2_500_000, 25_000_000)
Operation = Callable[[], object]


def medians(operations: dict[str, Operation], seconds: float = 3.0) -> dict[str, float]:
    """Return the median CPU seconds of each operation over 3 to 301 interleaved rounds within about `seconds`."""
    for run in operations.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in operations}
    began = thread_time()
    for rounds in range(301):
        if rounds >= 3 and thread_time() - began > seconds:
            break
        for name, run in operations.items():
            start = thread_time()
            run()
            times[name].append(thread_time() - start)
    return {name: median(values) for name, values in times.items()}


def compress(compressor: Compressor, a: torch.Tensor, ctx: Context) -> Operation:
    """Return the call that fills a payload from `a`."""
    payload = Payload.allocate(compressor.layout(a.numel(), ctx.density))
    return lambda: compressor.compress(a, payload, ctx)


def step(compressor: Compressor, memory: Memory, a: torch.Tensor, ctx: Context) -> Operation:
    """Return the call that accumulates gradient `a`, compresses it and updates the memory."""
    payload = Payload.allocate(compressor.layout(a.numel(), ctx.density))
    old = {name: torch.zeros_like(a) for name in memory.buffers}
    new = {name: torch.zeros_like(a) for name in memory.buffers}

    def run() -> None:
        memory.accumulate(a, old, new)
        compressor.compress(new[memory.buffers[0]], payload, ctx)
        memory.sent(compressor, payload, new, ctx)

    return run


def operations(numel: int, density: float) -> dict[str, Operation]:
    """Return what is timed for one size, by row name; the first is the copy."""
    uniform = torch.rand(numel, generator=torch.Generator().manual_seed(0)) - 0.5
    a = -1e-3 * uniform.sign() * torch.log1p(-1.999 * uniform.abs())
    target, ctx = torch.empty_like(a), Context(0, 0, 0, 8, density)
    timed: dict[str, Operation] = {
        "copy": lambda: target.copy_(a),
        "torch.topk": lambda: torch.topk(a.abs(), k_floor(numel, density), sorted=False),
    }
    for entry in compressors:
        compressor = build(entry.name)
        timed[entry.name] = compress(compressor, a, ctx)
        if compressor.error_feedback:
            timed[f"{entry.name} + memory"] = step(compressor, memories.build("residual"), a, ctx)
    timed["dgc(mode=faithful)"] = compress(build("dgc(mode=faithful)"), a, ctx)
    timed["dgc + dgc memory"] = step(build("dgc"), memories.build("dgc"), a, ctx)
    return timed


@click.command()
@click.option(
    "--density",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.01,
    show_default=True,
    help="kept fraction in (0, 1]",
)
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), help="also write medians and this machine to FILE"
)
def main(density: float, json_file: Path | None) -> None:
    """Print the table, in multiples of one copy."""
    torch.set_num_threads(1)
    console = Console()
    seconds = {n: medians(operations(n, density)) for n in track(SIZES, "timing", console=Console(stderr=True))}

    table = Table(
        title=f"multiples of one copy, density {density:g}, one thread, CPU time", caption=describe(hardware())
    )
    table.add_column("operation")
    for numel in SIZES:
        table.add_column(f"n = {numel:,}", justify="right")
    table.add_row("copy [us]", *(f"{seconds[n]['copy'] * 1e6:.1f}" for n in SIZES), end_section=True)
    for name in list(seconds[SIZES[0]])[1:]:
        table.add_row(name, *(f"{seconds[n][name] / seconds[n]['copy']:.1f}" for n in SIZES))
    console.print(table)
    if json_file:
        record = {"density": density, "hardware": hardware(), "versions": versions(), "seconds": seconds}
        json_file.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
