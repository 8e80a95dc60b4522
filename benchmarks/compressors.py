"""Time every compressor on this machine's CPU, as multiples of one copy of the same buffers, beside torch's operators.

    python benchmarks/compressors.py [--density 0.01] [--models resnet152,bert_large] [--only topk,dgc]
                                     [--seconds 3] [--json FILE] [--rows FILE]

One thread and its CPU time, Laplace-distributed data. All operations of one size are interleaved in one run and their
medians compared, because on a shared machine only ratios mean something. "+ memory" accumulates the gradients through
the residual memory and updates it, which is all that a training step does before the exchange; "plain torch" is the
same step without compiled kernels. A model is one bucket of all its tensors, each with its own threshold. `--rows`
writes what the figures ssfusion.fig04 and ssfusion.table03 need: one row for each compressor, alone, and single tensor.
"""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter, process_time, thread_time
from typing import Any

import click
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from ssfx.compressors import Compressor, Layout, build, compressors, k_floor
from ssfx.compressors.batch import Batch
from ssfx.compressors.blank import blank_batch, run
from ssfx.compressors.dgc import capacity
from ssfx.compressors.kernels import Bound, Rule, kernels, plain_torch
from ssfx.compressors.memories import memories
from ssfx.compressors.sparse import Selector
from ssfx.core.case import Case
from ssfx.core.origin import Origin
from ssfx.core.rows import Row
from ssfx.core.spec import NoOptions
from ssfx.lab.results.manifest import busy_s, code, describe, hardware, now, versions
from ssfx.lab.results.store import export
from ssfx.perf_model.shipped_profiles import load_shipped
from ssfx.schemes.transport import keeps_fraction

SIZES = (250, 2_500, 25_000, 250_000, 2_500_000, 25_000_000)
SLOW_NUMEL = 1_000_000
"""Largest vector that the slow references are timed on."""
ROUNDS = 301
Operation = Callable[[], object]


class KnownThreshold(Selector):
    """Selection above a threshold that is known before the step, as when the last step's is used again."""

    name, summary, source = "known threshold", "", ""

    def __init__(self, density: float) -> None:
        self.options = NoOptions()
        self.threshold = -1e-3 * float(torch.tensor(density).log())  # of the Laplace distribution that is drawn below

    def layout(self, numel: int, density: float) -> Layout:
        slots = capacity(k_floor(numel, density), numel, 1.3)
        return Layout(counts=1, indices=slots, values=slots)

    def compress_batch(self, batch: Batch) -> None:
        rule = batch.once("rule", lambda: Rule(tuple(Bound(0, 1, p.layout.indices) for p in batch.parts)))
        thresholds = batch.once("thresholds", lambda: torch.full((len(batch.parts),), self.threshold))
        kernels(batch.vector.device).select(batch, rule, thresholds)


def laplace(numel: int, seed: int) -> torch.Tensor:
    uniform = torch.rand(numel, generator=torch.Generator().manual_seed(seed)) - 0.5
    return -1e-3 * uniform.sign() * torch.log1p(-1.999 * uniform.abs())


@functools.lru_cache(maxsize=4)
def buffer(_role: str, numel: int) -> torch.Tensor:
    """Return zeros that all operations of one size share: nothing of a bucket's memory outlives a call here."""
    return torch.zeros(numel)


def step(
    compressor: Compressor, memory: str, grads: list[torch.Tensor], shapes: list[tuple[int, ...]], density: float
) -> Operation:
    """Return the call that takes one bucket's gradients to its payload."""
    keeper = memories.build(memory)
    batch = blank_batch(compressor, [[shape] for shape in shapes], density, keeper)
    batch.old = {name: buffer(f"old {i}", old.numel()) for i, (name, old) in enumerate(batch.old.items())}
    batch.new = {name: buffer(f"new {i}", new.numel()) for i, (name, new) in enumerate(batch.new.items())}
    batch.world_size = 8

    def work() -> None:
        batch.grads = list(grads)
        run(batch, compressor)

    return work


def plainly(run: Operation) -> Operation:
    def work() -> None:
        with plain_torch():
            run()

    return work


def operations(shapes: list[tuple[int, ...]], density: float, only: set[str]) -> dict[str, Operation]:
    """Return what is timed for one bucket, by row name; the first is the copy."""
    grads = [laplace(torch.Size(shape).numel(), seed) for seed, shape in enumerate(shapes)]
    targets = [torch.empty_like(grad) for grad in grads]
    numel = sum(grad.numel() for grad in grads)

    def copy() -> None:
        for target, grad in zip(targets, grads, strict=True):
            target.copy_(grad)

    def torch_top_k() -> None:
        for grad in grads:
            torch.topk(grad.abs(), k_floor(grad.numel(), density), sorted=False)

    def made(spec: str | Compressor, memory: str) -> Operation:
        return step(build(spec) if isinstance(spec, str) else spec, memory, grads, shapes, density)

    timed: dict[str, Operation] = {"copy": copy}
    timed["torch.topk, no memory"] = torch_top_k
    timed["known threshold + memory"] = made(KnownThreshold(density), "residual")
    for entry in compressors:
        if only and entry.name not in only:
            continue
        compressor = build(entry.name)
        timed[entry.name] = made(entry.name, "none")
        if compressor.error_feedback and not compressor.lossless:
            timed[f"{entry.name} + memory"] = made(entry.name, "residual")
            if numel <= SLOW_NUMEL:
                timed[f"{entry.name} + memory, plain torch"] = plainly(made(entry.name, "residual"))
    return timed


def measured(operations: dict[str, Operation], seconds: float) -> dict[str, list[float]]:
    """Return the CPU seconds of each operation in 3 to ROUNDS interleaved rounds within about `seconds`."""
    for work in operations.values():
        work()
    times: dict[str, list[float]] = {name: [] for name in operations}
    began = thread_time()
    names = list(operations)
    for rounds in range(ROUNDS):
        if rounds >= 3 and thread_time() - began > seconds:
            break
        for name in random.Random(rounds).sample(names, len(names)):  # no method always runs after the same neighbour
            work = operations[name]
            start = thread_time()
            work()
            times[name].append(thread_time() - start)
    return times


def rows_of(numel: int, density: float, times: dict[str, list[float]], conditions: dict[str, Any]) -> list[Row]:
    """Return one row for each compressor that was timed alone on a tensor of `numel` elements."""
    alone = [name for name in compressors.names() if name in times]
    machine = hardware()
    made = []
    for name in alone:
        case = Case(
            experiment="compressors",
            model=f"vector(numel={numel})",
            dataset="laplace",
            scheme="per_tensor",
            cluster="local",
            world_size=1,
            batch_size=1,
            compressor=name,
            density=density if keeps_fraction(name) else None,
            steps=ROUNDS,
            warmup_steps=1,
        )
        manifest = {
            "code": code(),
            "versions": versions(),
            "hardware": machine,
            "environment": {},
            "seed": case.seed,
            "exit_reason": "finished",
            "measured_together": len(alone),
            **conditions,
        }
        origin = Origin("measured", describe(machine), conditions["stopped"], "CPU time of one thread", versions())
        samples = {"compress_s": [float(f"{seconds:.4g}") for seconds in times[name]]}
        made.append(Row(case.run_id, case, {"compress_s": median(samples["compress_s"])}, origin, manifest, samples))
    return made


@click.command()
@click.option("--density", type=click.FloatRange(0, 1, min_open=True), default=0.01, show_default=True)
@click.option("--models", default="resnet152,bert_large", show_default=True, help="comma list; empty for none")
@click.option("--only", default="", help="comma list of compressors; all by default")
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), help="also write medians and this machine to FILE"
)
@click.option("--seconds", "seconds_per_size", default=3.0, show_default=True, help="CPU time spent on each bucket")
@click.option("--rows", "rows_file", type=click.Path(path_type=Path), help="also write rows for the figures to FILE")
def main(
    density: float, models: str, only: str, json_file: Path | None, seconds_per_size: float, rows_file: Path | None
) -> None:
    """Print the table, in multiples of one copy."""
    torch.set_num_threads(1)
    console, chosen = Console(width=150), {name for name in only.split(",") if name}
    buckets: dict[str, list[tuple[int, ...]]] = {f"{n:,}": [(n,)] for n in SIZES}
    for model in filter(None, models.split(",")):
        buckets[model] = [spec.shape for spec in load_shipped(model).tensors]
    seconds, single = {}, []
    for name, shapes in track(buckets.items(), "timing", console=Console(stderr=True)):
        started, before = now(), (perf_counter(), busy_s(), process_time())
        times = measured(operations(shapes, density, chosen), seconds_per_size)
        wall_s, busy, own = (b - a for a, b in zip(before, (perf_counter(), busy_s(), process_time()), strict=True))
        conditions = {
            "started": started,
            "stopped": now(),
            "background_cores": round(max(0.0, (busy - own) / wall_s), 3),
        }
        if len(shapes) == 1:
            single += rows_of(shapes[0][0], density, times, conditions)
        seconds[name] = {operation: median(values) for operation, values in times.items()}
    title = f"multiples of one copy, density {density:g}, one thread, CPU time"
    table = Table(title=title, caption=describe(hardware()))
    table.add_column("operation")
    for name, shapes in buckets.items():
        table.add_column(name if len(shapes) == 1 else f"{name}, {len(shapes)} tensors", justify="right")
    table.add_row("copy [us]", *(f"{seconds[n]['copy'] * 1e6:.1f}" for n in buckets), end_section=True)
    rows = dict.fromkeys(row for timed in seconds.values() for row in timed if row != "copy")
    for row in rows:
        cells = (f"{timed[row] / timed['copy']:.1f}" if row in timed else "" for timed in seconds.values())
        table.add_row(row, *cells)
    console.print(table)
    if json_file:
        record = {"density": density, "hardware": hardware(), "versions": versions(), "seconds": seconds}
        json_file.write_text(json.dumps(record, indent=1) + "\n")
    if rows_file:
        export(single, rows_file)
        console.print(f"{rows_file}: {len(single)} rows")


if __name__ == "__main__":
    main()
