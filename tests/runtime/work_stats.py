"""What the pool's ranks run for the statistics and the trace of a step."""

import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from runtime.models import build, loss_of
from runtime.ranks import among
from runtime.work import STEPS, attached, train
from torch import nn

import ssfx
from ssfx.collectives.hierarchical import node_size
from ssfx.collectives.primitives import Traffic, split_sizes, to_peers, traffic
from ssfx.runtime.message_kinds import DenseMessage, ReducedMessage
from ssfx.runtime.packed_message import PackedMessage
from ssfx.simulator.pricing.message_sizes import plan_bytes

Options = dict[str, Any]


class Uneven(nn.Module):
    """Three vectors whose gradients are constants: large, small and zero."""

    def __init__(self) -> None:
        super().__init__()
        self.small = nn.Parameter(torch.zeros(20))
        self.empty = nn.Parameter(torch.zeros(0))
        self.large = nn.Parameter(torch.zeros(20))
        self.unused = nn.Parameter(torch.zeros(20))

    def forward(self, rank: int) -> torch.Tensor:
        large = self.large if rank == 0 else 0 * self.large
        return (100 * large + self.small).sum() + self.empty.sum()


def missing(group: Any, rank: int, world: int, options: Options) -> tuple[float, float | None, int]:
    """Return achieved density, tensor-missing rate and the number of tensors of the second step of `Uneven`."""
    model = Uneven()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sync = ssfx.attach(model, optimizer, **among(group), **options)
    for _ in range(2):
        optimizer.zero_grad()
        model(rank).backward()
        if sync.step == 1:
            sync.store.scale(0.0)  # so that only this step's gradient counts
        optimizer.step()
    result = (sync.last.achieved_density, sync.last.tensor_missing_rate, len(sync.plan.tensors))
    sync.detach()
    return result


def contributed(group: Any, rank: int, world: int, options: Options) -> list[tuple[int, int, Traffic, Traffic]]:
    """Return of every step: bytes contributed, bytes of the plan in use, what was sent as counted and as described.

    Steps after which the plan changed are left out: planning sends messages of its own.
    """
    model, optimizer, sync = attached("mlp", group, world, options)
    seen = []
    for step in range(STEPS):
        plan, before = sync.plan, sync.comm.sent
        train(model, optimizer, rank, range(step, step + 1))
        planned = plan_bytes(plan)
        if sync.plan is plan:
            counted = Traffic(sync.comm.sent.messages - before.messages, sync.comm.sent.sent_bytes - before.sent_bytes)
            assert counted.sent_bytes == sync.last.sent_bytes
            described = sum(
                (_described(message, rank, world) for message in sync._exchange.messages), start=Traffic(0, 0)
            )
            seen.append((sync.last.contributed_bytes, planned, counted, described))
        summary = sync.stats()
        assert summary["contributed_bytes"] == planned
        assert 0 < summary["achieved_density"] <= 1
        assert summary["comm_s"] > 0
    sync.detach()
    return seen


def _described(message: Any, rank: int, world: int) -> Traffic:
    """Return what a message's collective says that this rank sent in the latest step."""
    if isinstance(message, ReducedMessage):
        return message._reduced.traffic
    if isinstance(message, PackedMessage) and not message.collective.additive_only:
        sizes = [message.nbytes]
        if message.collective.variable:
            sizes = [8, message.pending.result.shape[1]]
        elif message.collective.name == "all_gather_twice":
            sizes = [message.nbytes // 2, message.nbytes - message.nbytes // 2]
        return sum((traffic("all_gather", size, world, rank) for size in sizes), start=Traffic(0, 0))
    data = message.flat if isinstance(message, DenseMessage) else message.pending.result
    numel, item_bytes = data.numel(), data.element_size()
    match message.collective.name:
        case "block_all_reduce":  # dense gradients: every block is in the union
            return message.collective.sent(numel, item_bytes, numel, world, rank)
        case "row_sparse":
            rows = range(numel // message.collective.options.width)
            return message.collective.sent([rows] * world, numel, item_bytes, rank)
        case "hierarchical_all_reduce":
            return _hierarchical(message.collective, numel * item_bytes, item_bytes, rank, world)
    used = traffic("all_reduce", numel * item_bytes, world, rank, item_bytes)
    first = message.layout.first.length if isinstance(message, PackedMessage) else 0  # what ranks agree on beforehand
    return used + traffic("all_reduce", 4 * first, world, rank, 4) if first else used


def _hierarchical(collective: Any, nbytes: int, item_bytes: int, rank: int, world: int) -> Traffic:
    """Return all parts but the own one of every phase, then the own ones to each of the others."""
    size = node_size(collective.options.ranks_per_node, world)
    node, local = divmod(rank, size)
    shards = [item_bytes * part for part in split_sizes(nbytes // item_bytes, size)]
    pieces = [item_bytes * part for part in split_sizes(shards[local] // item_bytes, world // size)]
    used = to_peers(shards, local) + to_peers(pieces, node)
    used += to_peers([pieces[node]] * len(pieces), node)
    return used + to_peers([shards[local]] * len(shards), local)


def trace(group: Any, rank: int, world: int, options: Options) -> tuple[dict[str, Any], list[str], int]:
    """Return the trace file of a few steps, what the exchange spans of the last step must be called, and lanes."""
    model, optimizer, sync = attached("mlp", group, world, {**options, "trace": True})
    train(model, optimizer, rank, range(STEPS))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        sync.tracer.save(path)
        saved = json.loads(path.read_text())
        assert [p.name for p in Path(folder).iterdir()] == ["trace.json"]
    names = [f"exchange {lane.collective}" for _, lane in sync.plan.lanes()]
    sync.detach()
    return saved, names, sync.step


def untraced(group: Any, rank: int, world: int) -> int:
    model = build("mlp")
    sync = ssfx.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), process_group=group)
    loss_of(model, rank, 0).backward()
    sync.detach()
    return len(sync.tracer._events)


def ratios(group: Any, rank: int, world: int, options: Options) -> tuple[list[float], list[float]]:
    """Return the density ratios of the first step of `Uneven`, read at once and after the buffers are gone."""
    model = Uneven()
    sync = ssfx.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), **among(group), **options)
    model(rank).backward()
    before = sorted(sync.last.density_ratios)
    sync.last.freeze()
    sync.detach()
    return before, sorted(sync.last.density_ratios)
