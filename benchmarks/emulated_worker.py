"""One rank of benchmarks/emulated.py: all variants of one model take turns in one process group and are timed.

    python benchmarks/emulated_worker.py REQUEST.json      # with RANK, WORLD_SIZE and GLOO_SOCKET_IFNAME set

Every variant has a model, an optimizer and a process group of its own. What it keeps between steps (residuals, factors,
thresholds, a plan) stays while others have their turn.
"""

import json
import os
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import torch
import torch.distributed as dist
from emulated import BARRIER, DATASETS, LIMIT, MEASURES, NEAREST_LIMIT, scheme_of
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import ssfx
from ssfx.core.errors import SsfxError
from ssfx.core.machine import share_cores
from ssfx.lab.results.manifest import busy_s
from ssfx.lab.workloads import datasets, models
from ssfx.lab.workloads.objective import cross_entropy
from ssfx.runtime.sync import Sync
from ssfx.schemes import schemes

VISIT_S = 0.3
MOST_STEPS = 12
WARM_STEPS = 3
"""DDP groups its buckets again after the first step, and its PowerSGD hook compresses from the third on."""
TIMEOUT_S = 400.0

Loss = Callable[[nn.Module], torch.Tensor]


class Variant:
    """A model that trains with one way of exchanging gradients."""

    def __init__(self, name: str, model: nn.Module, costs: dict[str, Any]) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        system, _, rest = name.partition(" ")
        self.steps = 1
        self._sync: Sync | None = None
        if name == BARRIER:
            optimizer.register_step_pre_hook(meet)
        elif system == "torch":
            model = torch_ddp(model, rest.removeprefix("DDP").strip())
        elif name != LIMIT:
            self._sync = attach(model, optimizer, *scheme_of(rest), costs)
        self._model, self._optimizer = model, optimizer

    def warm_up(self, losses: Sequence[Loss]) -> None:
        """Return when the plan is final; choose how many steps a visit has, the same number on all ranks."""
        warm_steps = WARM_STEPS
        if self._sync and self._sync.scheme.profiled:
            options: Any = self._sync.scheme.options(self._sync.given)
            warm_steps = 1 + options.profile_iters
        for number in range(warm_steps):
            self._step(losses[number % len(losses)])
        while self._sync and self._sync.settling:
            self._step(losses[0])
        # Of the slowest rank, so that all come to the same number.
        self.steps = min(MOST_STEPS, max(2, round(VISIT_S / float(self._timed(losses, 1)[:, 0].max()))))

    def visit(self, losses: Sequence[Loss]) -> list[float]:
        """Return MEASURES per step: the time of the slowest rank, the mean over ranks of the rest."""
        self._step(losses[-1])  # not timed: it finds the caches and the line as another variant left them
        everyone = self._timed(losses, self.steps)
        return [float(everyone[:, 0].max()), *everyone[:, 1:].mean(0).tolist()]

    def costs(self) -> tuple[str, Any] | None:
        """Return the compressor and the costs that this variant has planned with; None if it needed none."""
        if self._sync is None or not self._sync.scheme.profiled or self._sync.scheme.chooses:
            return None
        return str(self._sync.scheme.online(self._sync.given).compressor), self._sync.costs

    def _step(self, loss: Loss) -> None:
        self._optimizer.zero_grad()
        loss(self._model).backward()
        self._optimizer.step()

    def _timed(self, losses: Sequence[Loss], steps: int) -> torch.Tensor:
        dist.barrier()
        began, began_cpu = perf_counter(), process_time()
        for number in range(steps):
            self._step(losses[number])
        spent = [(perf_counter() - began) / steps, (process_time() - began_cpu) / steps]
        last = self._sync.last if self._sync else None
        parts = [last.sparsify_s, last.decode_s, last.exposed_comm_s, float(last.sent_bytes)] if last else [0.0] * 4
        everyone = [torch.empty(len(MEASURES), dtype=torch.float64) for _ in range(dist.get_world_size())]
        dist.all_gather(everyone, torch.tensor([*spent, *parts], dtype=torch.float64))
        return torch.stack(everyone)


def meet(*_: Any) -> None:
    """Return when all ranks are here: what any exchange costs at least."""
    dist.barrier()


def torch_ddp(model: nn.Module, hook: str) -> nn.Module:
    """Return `model` in torch DDP with a group of its own; buffers are not broadcast, as ssfx does not either."""
    group: Any = dist.new_group()
    if hook != "powersgd":
        wrapped = DistributedDataParallel(model, process_group=group, broadcast_buffers=False)
        if hook == "fp16":
            wrapped.register_comm_hook(group, fp16_compress_hook)
        return wrapped
    # One bucket: the hook starts its later rounds from callbacks, and those of several buckets have no common order.
    wrapped = DistributedDataParallel(model, process_group=group, broadcast_buffers=False, bucket_cap_mb=1024)
    wrapped.register_comm_hook(PowerSGDState(group, matrix_approximation_rank=4, start_powerSGD_iter=2), powerSGD_hook)
    return wrapped


def attach(
    model: nn.Module, optimizer: torch.optim.Optimizer, scheme: str, options: dict[str, Any], costs: dict[str, Any]
) -> Sync:
    """Return the exchange; profiled schemes that compress alike plan with the costs that the first one measured."""
    entry = schemes[scheme]
    known = costs.get(str(entry.online(options).compressor)) if entry.profiled and not entry.chooses else None
    return ssfx.attach(model, optimizer, scheme=scheme, costs=known, **options)


def loss_of(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return cross_entropy(model, *batch)


def measure(model: str, variants: list[str], rounds: int) -> dict[str, Any]:
    """Return MEASURES and NEAREST_LIMIT of every visit by variant, and the cores that something else kept busy."""
    entry = models[model]
    samples = datasets.build(DATASETS.get(model) or f"synthetic(model={model})")
    batches = samples.train_loader(dist.get_rank(), dist.get_world_size(), entry.batch_size, 0)
    losses: list[Loss] = [partial(loss_of, batch=batches[number]) for number in range(MOST_STEPS)]
    costs: dict[str, Any] = {}
    trained = {}
    for name in variants:
        torch.manual_seed(0)
        trained[name] = variant = Variant(name, entry.build(), costs)
        variant.warm_up(losses)
        if found := variant.costs():
            costs.setdefault(*found)
    visits: dict[str, list[list[float]]] = {name: [] for name in variants}
    names = (*MEASURES, NEAREST_LIMIT)
    before = perf_counter(), busy_s(), process_time()
    for turn in range(rounds):
        first = turn * len(variants) // rounds  # no variant always follows the same neighbour
        before_s = trained[LIMIT].visit(losses)[0]
        for name in variants[first:] + variants[:first]:
            visited = trained[name].visit(losses)
            after_s = trained[LIMIT].visit(losses)[0]
            visits[name].append([*visited, (before_s + after_s) / 2])
            before_s = after_s
    wall_s, machine_s, own_s = (b - a for a, b in zip(before, (perf_counter(), busy_s(), process_time()), strict=True))
    all_own_s = torch.tensor([own_s], dtype=torch.float64)
    dist.all_reduce(all_own_s)
    return {
        "batch_size": entry.batch_size,
        "gradient_bytes": 4 * sum(p.numel() for p in entry.build().parameters()),
        "background_cores": max(0.0, (machine_s - float(all_own_s)) / wall_s),
        "visits": {n: dict(zip(names, zip(*rows, strict=True), strict=True)) for n, rows in visits.items()},
    }


def die_with_launcher() -> None:
    """End this process when its standard input closes, which the kernel does when the launcher is gone."""

    def wait() -> None:
        os.read(0, 1)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def main() -> None:
    """Write the result that the request asks for."""
    die_with_launcher()
    warnings.filterwarnings("ignore", category=UserWarning)
    torch.set_num_threads(1)
    request = json.loads(Path(sys.argv[1]).read_text())
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    share_cores(rank, world_size)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{request['store']}",
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=TIMEOUT_S),
    )
    try:
        result = measure(request["model"], request["variants"], request["rounds"])
    except SsfxError as error:
        print(error, flush=True)
        os._exit(error.exit_code)  # the others are waiting for this rank in a collective, and are ended
    if rank == 0:
        Path(request["result"]).write_text(json.dumps(result))
    dist.barrier()
    os._exit(0)  # dozens of idle groups and their threads need not be taken down one by one


if __name__ == "__main__":
    main()
