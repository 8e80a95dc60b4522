"""Time torch's optimizers on this machine's CPU, fused and not, on models without a zero and on sparsely updated ones.

    python benchmarks/optimizers.py [--density 0.01] [--elements 250000] [--tensors 8] [--rounds 30]

One thread; all variants of one run take turns and their medians are compared. ssfx's workloads step with the fused
kernels: this shows what that saves, and that their time does not depend on how many gradients were zero so far.
"""

from __future__ import annotations

from statistics import median
from time import perf_counter

import click
import torch
from rich.console import Console
from rich.table import Table

OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"momentum": 0.9, "weight_decay": 1e-4}),
    "adam": (torch.optim.Adam, {}),
    "adamw": (torch.optim.AdamW, {}),
}
GRADIENTS = ("dense", "sparse")


def make(name: str, fused: bool, gradients: list[torch.Tensor]) -> torch.optim.Optimizer:
    """Return the optimizer of fresh parameters that have these gradients."""
    parameters = [torch.nn.Parameter(torch.randn_like(gradient)) for gradient in gradients]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    kind, options = OPTIMIZERS[name]
    return kind(parameters, lr=1e-4, fused=fused, **options)


def table(rounds: int, steps_s: dict[tuple[str, bool, str], list[float]]) -> Table:
    columns = ("optimizer", "gradients", "plain, ms", "fused, ms", "plain / fused")
    shown = Table(*columns, title=f"medians of {rounds} steps")
    for name in OPTIMIZERS:
        for kind in GRADIENTS:
            plain_s, fused_s = (median(steps_s[name, fused, kind]) for fused in (False, True))
            shown.add_row(name, kind, f"{1e3 * plain_s:.2f}", f"{1e3 * fused_s:.2f}", f"{plain_s / fused_s:.1f}")
    return shown


@click.command(help=__doc__)
@click.option("--density", default=0.01, show_default=True)
@click.option("--elements", default=250_000, show_default=True, help="per tensor")
@click.option("--tensors", default=8, show_default=True)
@click.option("--rounds", default=30, show_default=True)
def main(density: float, elements: int, tensors: int, rounds: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dense = [torch.randn(elements) for _ in range(tensors)]
    sparse = [gradient * (torch.rand(elements) < density) for gradient in dense]
    gradients = dict(zip(GRADIENTS, (dense, sparse), strict=True))
    variants = {
        (name, fused, kind): make(name, fused, gradients[kind])
        for name in OPTIMIZERS for fused in (False, True) for kind in GRADIENTS
    }  # fmt: skip
    steps_s: dict[tuple[str, bool, str], list[float]] = {variant: [] for variant in variants}
    for _ in range(rounds):
        for variant, optimizer in variants.items():
            began = perf_counter()
            optimizer.step()
            steps_s[variant].append(perf_counter() - began)
    Console().print(table(rounds, steps_s))


if __name__ == "__main__":
    main()
