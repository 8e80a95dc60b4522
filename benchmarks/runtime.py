"""ssfx beside torch DDP, in one run with 2 gloo workers on CPU: iteration time, hook overhead, memory, every scheme.

    python benchmarks/runtime.py [--rounds 12] [--steps 10] [--workers 2]

The variants of one model take turns, a few steps each, in an order that rotates, so that a drifting machine hits all
alike.
Times are medians over rounds of the slowest rank; what counts are the ratios. Memory is the peak resident set of a
fresh process per variant and model size; its growth with the model is given in gradient copies.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ssfx
from ssfx.lab.workloads import datasets, models
from ssfx.lab.workloads.objective import cross_entropy
from ssfx.schemes import schemes

WORKLOADS = {
    "resnet_tiny": ("digits", 32),
    "lstm_tiny": ("stdlib_text(seq_len=64)", 8),
    "gpt2_tiny": ("stdlib_text(seq_len=64)", 8),
}
REFERENCES = ("no exchange", "torch DDP", "torch DDP again")  # the last one shows what the machine's noise alone does
MEMORY_VARIANTS = (  # the last number is the density: what memory it costs is messages, the rest is the residual
    "torch DDP",
    "ssfx ddp",
    "ssfx per_tensor topk 0.01",
    "ssfx per_tensor topk 0.001",
    "ssfx ssfusion_oi topk 0.01",
    "ssfx ssfusion_oi topk 0.001",
)


@dataclass
class Runner:
    """One variant: a model of its own, its optimizer, and how a gradient step is exchanged."""

    model: nn.Module
    optimizer: torch.optim.Optimizer

    def step(self, loss: Callable[[nn.Module], torch.Tensor]) -> None:
        self.optimizer.zero_grad()
        loss(self.model).backward()
        self.optimizer.step()


def make(variant: str, build: Callable[[], nn.Module]) -> Runner:
    torch.manual_seed(0)
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    if variant in REFERENCES[1:]:
        return Runner(DistributedDataParallel(model), optimizer)
    if variant != "no exchange":
        _, scheme, *rest = variant.split()
        options = {"compressor": rest[0] if rest else None} | ({"density": float(rest[1])} if rest[1:] else {})
        ssfx.attach(model, optimizer, scheme=scheme, **options)
    return Runner(model, optimizer)


def variants() -> list[str]:
    sparse = [
        f"ssfx {s.name} {compressor}"
        for s in schemes
        if not s.dense
        for compressor in (("topk", "dgc") if s.compressors in ("any", "selecting") else (s.defaults.compressor,))
    ]
    return ["ssfx ddp", "ssfx wfbp", "ssfx ssgd", "ssfx ddp fp16", "ssfx ddp bf16", *sparse]


def slowest(seconds: float) -> float:
    worst = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(worst, op=dist.ReduceOp.MAX)
    return float(worst)


def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return cross_entropy(model, *batch)


def iteration_times(
    rank: int, world: int, rounds: int, steps: int, chosen: list[str], names: list[str]
) -> dict[str, dict[str, list[float]]]:
    """Return, per model and variant, the seconds per step of every round."""
    table: dict[str, dict[str, list[float]]] = {}
    for name in names:
        dataset, batch_size = WORKLOADS[name]
        batches = datasets.build(dataset).train_loader(rank, world, batch_size, 0)
        runners = {v: make(v, models[name].build) for v in chosen}
        times: dict[str, list[float]] = {v: [] for v in runners}
        for turn in range(rounds + 1):
            first = turn % len(chosen)  # nobody always follows the same neighbour
            for variant in chosen[first:] + chosen[:first]:
                runner = runners[variant]
                losses = [partial(loss, batch=batches[i]) for i in range(max(8, steps))]
                for work in losses[: 8 if turn == 0 else 1]:  # the first turn passes the profiling iterations
                    runner.step(work)
                dist.barrier()
                began = perf_counter()
                for work in losses[:steps]:
                    runner.step(work)
                spent = slowest(perf_counter() - began) / steps
                if turn:
                    times[variant].append(spent)
        table[name] = times
    return table


class Deep(nn.Module):
    """Many equal small layers: their hooks are most of the work."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def hook_overhead_us(rank: int, rounds: int) -> dict[str, list[float]]:
    """Return microseconds per tensor above the step without exchange, for 400 tensors of at most 64 elements."""
    names = ("no exchange", "torch DDP", "ssfx ddp")
    runners = {v: make(v, lambda: Deep(200)) for v in names}
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(rank))
    out: dict[str, list[float]] = {v: [] for v in names[1:]}
    for turn in range(rounds + 1):
        spent = {}
        for variant, runner in runners.items():
            dist.barrier()
            began = perf_counter()
            for _ in range(10):
                runner.step(lambda m: m(x).square().sum())
            spent[variant] = slowest(perf_counter() - began) / 10
        if turn:
            for variant in out:
                out[variant].append((spent[variant] - spent["no exchange"]) / 400 * 1e6)
    return out


def peak_memory(variant: str, layers: int) -> float:
    """Return this process's peak resident bytes over ten steps of a model of `layers` million parameters."""
    runner = make(variant, lambda: nn.Sequential(*(nn.Linear(1000, 1000) for _ in range(layers))))
    x = torch.randn(2, 1000)
    for _ in range(10):
        runner.step(lambda m: m(x).square().mean())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def serve(rank: int, world: int, folder: str, work: Callable[..., Any], args: tuple[Any, ...]) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    warnings.filterwarnings("ignore", category=UserWarning)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    result = work(*args) if work is peak_memory else work(rank, *args)
    dist.barrier()
    if rank == 0:
        torch.save(result, f"{folder}/result")
    dist.destroy_process_group()


def launch(world: int, work: Callable[..., Any], *args: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(serve, (world, folder, work, args), nprocs=world)
        return torch.load(f"{folder}/result")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--variants", default=",".join(variants()), help="comma list, beside the references")
    parser.add_argument("--models", default=",".join(WORKLOADS))
    parser.add_argument("--only", choices=("times", "hooks", "memory"))
    options = parser.parse_args()
    console = Console(width=110)
    if options.only in (None, "times"):
        print_times(console, options)
    if options.only in (None, "hooks"):
        overhead = launch(options.workers, hook_overhead_us, options.rounds)
        for variant, values in overhead.items():
            console.print(f"exchange overhead per tensor, {variant}: {median(values):.1f} us (400 tensors of <= 64)")
    if options.only in (None, "memory"):
        print_memory(console, options.workers)


def print_times(console: Console, options: argparse.Namespace) -> None:
    chosen = list(dict.fromkeys([*REFERENCES, *options.variants.split(",")]))
    times = launch(
        options.workers,
        iteration_times,
        options.workers,
        options.rounds,
        options.steps,
        chosen,
        options.models.split(","),
    )
    for name, by_variant in times.items():
        setting = f"{options.workers} gloo workers, 1 thread each, {options.rounds} rounds"
        table = Table(title=f"{name}: ms per step, {setting}")
        for column in ("variant", "median ms", "over torch DDP", "range of the ratio", "over no exchange"):
            table.add_column(column, justify="left" if column == "variant" else "right")
        for variant, values in by_variant.items():
            ratios = [a / b for a, b in zip(values, by_variant["torch DDP"], strict=True)]
            alone = [a / b for a, b in zip(values, by_variant["no exchange"], strict=True)]
            table.add_row(
                variant, f"{median(values) * 1e3:.2f}", f"{median(ratios):.3f}",
                f"{min(ratios):.2f}-{max(ratios):.2f}", f"{median(alone):.2f}",
            )  # fmt: skip
        console.print(table)


def print_memory(console: Console, workers: int) -> None:
    """Print the growth of the peak per gradient copy that the model grows by, so that fixed costs do not count."""
    small, large = 16, 64
    growth_bytes = 4 * (large - small) * (1000 * 1000 + 1000)
    copies = {}
    for variant in MEMORY_VARIANTS:
        low, high = (launch(workers, peak_memory, variant, layers) for layers in (small, large))
        copies[variant] = (high - low) / growth_bytes
        console.print(
            f"peak memory, {variant}: {copies[variant]:.2f} gradient copies, "
            f"{copies[variant] - copies['torch DDP']:+.2f} over torch DDP "
            f"({high / 2**20:.0f} MiB at {large} M parameters)"
        )


if __name__ == "__main__":
    main()
