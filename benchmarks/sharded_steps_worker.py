"""One rank of benchmarks/sharded_steps.py: steps of a sharded transformer, and the parts that predictions are made of.

    python -m sharded_steps_worker REQUEST.json      # with RANK, WORLD_SIZE and GLOO_SOCKET_IFNAME set

Steps and parts take turns, round by round, because a shared machine changes its speed from one second to the next.
"""

import json
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

import ssfx
from ssfx.core import machine
from ssfx.lab.worker.stop import die_with_launcher

WORDS, WIDTH, LENGTH, BLOCKS = 512, 256, 16, 4
WARM_STEPS = 2


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.down(torch.relu(self.up(x)))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Variant:
    """A model that trains one way: by torch's own sharding (options None), or with ssfx."""

    def __init__(self, mesh: Any, options: dict[str, Any] | None) -> None:
        torch.manual_seed(0)
        self.model: Any = Transformer()
        for block in self.model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.sync = ssfx.attach(self.model, self.optimizer, **options) if options is not None else None

    def step(self) -> tuple[float, ...]:
        """Train a step; return when forward, backward and the optimizer ended, from its begin, in seconds."""
        tokens = torch.randint(WORDS, (1, LENGTH + 1))
        began = perf_counter()
        self.optimizer.zero_grad()
        out = self.model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(out.flatten(0, 1), tokens[:, 1:].flatten())
        forward = perf_counter()
        loss.backward()
        backward = perf_counter()
        self.optimizer.step()
        return tuple(at - began for at in (forward, backward, perf_counter()))


def _slowest(values: tuple[float, ...]) -> list[float]:
    found = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(found, op=dist.ReduceOp.MAX)
    return found.tolist()


def _primitives(group: Any) -> dict[str, Callable[[int], None]]:
    ranks = dist.get_world_size(group)

    def gather(n: int) -> None:
        dist.all_gather_single(torch.empty(ranks * n), torch.ones(n), group=group)

    def scatter(n: int) -> None:
        dist.reduce_scatter_single(torch.empty(max(1, n // ranks)), torch.ones(max(1, n // ranks) * ranks), group=group)

    def exchange(n: int) -> None:
        size = max(1, n // ranks) * ranks
        dist.all_to_all_single(torch.empty(size), torch.ones(size), group=group)

    def total(n: int) -> None:
        dist.all_reduce(torch.ones(n), group=group)

    return {"all_gather": gather, "reduce_scatter": scatter, "all_to_all": exchange, "all_reduce": total}


def main(request_file: str) -> None:
    """Take turns as the request says; rank 0's result.json then lies in the folder of the request."""
    request = json.loads(Path(request_file).read_text())
    folder, rank, world = Path(request_file).parent, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    die_with_launcher()
    machine.share_cores(rank, world)
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=world, timeout=timedelta(seconds=120)
    )
    replicas, shards = request["shape"]
    names = ("replicas", "shards") if replicas > 1 else ("shards",)
    mesh = init_device_mesh("cpu", (replicas, shards) if replicas > 1 else (shards,), mesh_dim_names=names)
    groups = {name: mesh.get_group(name) for name in names}
    # On a mesh of its own a rank exchanges nothing, and fully_shard's own code takes what it takes.
    alone = Variant(DeviceMesh("cpu", [rank]), None)
    variants = {name: Variant(mesh, options) for name, options in request["variants"].items()}
    apart = [Variant(mesh["shards"], None)] if replicas > 1 else []  # nothing travels between its replicas
    for one in (alone, *apart, *variants.values()):
        for _ in range(WARM_STEPS):
            one.step()
    found: dict[str, Any] = {
        "alone": [],
        "apart": [],
        "crowding": [],
        "steps": {name: [] for name in variants},
        "exchanges": {
            leg: {name: {str(n): [] for n in request["sizes"]} for name in _primitives(group)}
            for leg, group in groups.items()
        },
        "tensors": [[name, list(p.shape)] for name, p in alone.model.named_parameters()],
    }
    for number in range(request["rounds"]):
        order = list(variants)
        for name in order[number % len(order) :] + order[: number % len(order)]:
            dist.barrier()
            cpu_s = thread_time()
            took_s = alone.step()
            found["crowding"].append(took_s[-1] / (thread_time() - cpu_s))
            found["alone"].append(_slowest(took_s))
            for one in apart:
                dist.barrier()
                found["apart"].append(_slowest(one.step())[-1])
            dist.barrier()
            found["steps"][name].append(_slowest(variants[name].step())[-1])
            for leg, group in groups.items():
                for kind, call in _primitives(group).items():
                    size = request["sizes"][len(found["alone"]) % len(request["sizes"])]
                    dist.barrier()
                    began = perf_counter()
                    call(size // 4)
                    found["exchanges"][leg][kind][str(size)].append(_slowest((perf_counter() - began,))[0])
    found["sent"] = {name: one.sync.stats()["sent_bytes"] for name, one in variants.items() if one.sync is not None}
    if rank == 0:
        (folder / "result.json").write_text(json.dumps(found))
    dist.barrier()
    os._exit(0)  # an orderly end of torch takes seconds and nothing is left to be saved


if __name__ == "__main__":
    main(sys.argv[1])
