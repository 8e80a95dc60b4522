"""Virtual ranks: the time of a step of P ranks over that of P passes of the model alone, for every scheme.

    python benchmarks/virtual.py [--model resnet_tiny] [--ranks 2,4,8] [--batch 4] [--steps 8] [--scheme A,B]

That weights, losses and residuals equal those of real ranks is what tests/runtime/test_virtual_ranks.py checks. Times
are medians of one rank's steps, in which all others have their turns; passes alone take turns with them, so that a
machine that drifts hits both.
"""

import argparse
from statistics import median
from time import perf_counter
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import ssfx
from ssfx.collectives.comm import Comm
from ssfx.core import accelerator
from ssfx.core.origin import Origin
from ssfx.lab.workloads import datasets, models
from ssfx.lab.workloads.objective import cross_entropy
from ssfx.planning.costs import Costs, Curve, ring_exchange
from ssfx.runtime.online import parameter_names, registration_profile
from ssfx.schemes import schemes


def measured(asked: argparse.Namespace, scheme: str, ranks: int) -> tuple[float, float]:
    """Return the seconds of a step of all ranks, and of one pass with its optimizer's step and no exchange."""
    entry, device = models[asked.model], torch.device(asked.device)
    data = datasets.build(f"synthetic(model={asked.model})")
    curve = Curve.affine(2e-4, 1e-9)
    costs = Costs(ranks, curve, curve, curve, ring_exchange(ranks, 2e-5, 8e-10), Origin("nominal"))

    def pass_s(model: Any, optimizer: Any, inputs: torch.Tensor, targets: torch.Tensor) -> float:
        accelerator.wait(device)
        began = perf_counter()
        optimizer.zero_grad()
        cross_entropy(model, inputs, targets).backward()
        optimizer.step()
        accelerator.wait(device)
        return perf_counter() - began

    def train(rank: int, comm: Comm) -> tuple[float, float]:
        torch.manual_seed(0)
        model, alone = (entry.build().to(device).train() for _ in range(2))
        optimizer, other = (torch.optim.SGD(one.parameters(), lr=0.01, momentum=0.9) for one in (model, alone))
        profile = registration_profile(parameter_names(model))
        ssfx.attach(model, optimizer, comm=comm, scheme=scheme, costs=costs, profile=profile)
        batches = data.train_loader(rank, ranks, asked.batch, 0)
        together, apart = [], []
        for step in range(asked.steps):
            inputs, targets = (tensor.to(device) for tensor in batches[step])
            comm.all_reduce(torch.zeros(1)).wait()
            if rank == 0:
                apart.append(pass_s(alone, other, inputs, targets))
            together.append(pass_s(model, optimizer, inputs, targets))
        return median(together[2:]), median(apart[2:]) if apart else 0.0

    return tuple(ssfx.virtual_ranks(train, ranks, device=device)[0])


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet_tiny")
    parser.add_argument("--ranks", default="2,4,8")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--scheme", default=",".join(schemes.names()))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    sizes = [int(size) for size in asked.ranks.split(",")]
    table = Table("scheme", *(f"{size} ranks: step ms, over passes" for size in sizes))
    for scheme in asked.scheme.split(","):
        cells = []
        for size in sizes:
            together_s, alone_s = measured(asked, scheme, size)
            cells.append(f"{1e3 * together_s:.1f}  {together_s / (size * alone_s):.2f}x")
        table.add_row(scheme, *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
