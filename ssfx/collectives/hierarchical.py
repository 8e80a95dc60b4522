"""Hierarchical all-reduce: sums inside nodes, sums of those across nodes, and the way back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from ssfx.collectives.base import Collective, Load, Phase, collectives
from ssfx.collectives.comm import Pending
from ssfx.collectives.primitives import split_sizes
from ssfx.core.errors import ConfigError
from ssfx.core.lazy import torch
from ssfx.core.spec import Bounded

if TYPE_CHECKING:
    from ssfx.collectives.comm import Comm, Pending

USUAL_NODE = 8


@dataclass(frozen=True)
class HierarchicalExchangeOptions(Bounded):
    """`ranks_per_node`: neighbours by rank share a node; 0 takes the largest number up to 8 that divides the ranks."""

    ranks_per_node: Annotated[int, 0] = 0


def node_size(ranks_per_node: int, world_size: int) -> int:
    """Return the ranks of one node; ConfigError when the ranks do not fill equal nodes."""
    if not ranks_per_node:
        return max(g for g in range(1, USUAL_NODE + 1) if world_size % g == 0)
    if world_size % ranks_per_node:
        divisors = [g for g in range(1, world_size + 1) if world_size % g == 0]
        nearest = min(divisors, key=lambda g: abs(g - ranks_per_node))
        raise ConfigError(
            f"{world_size} ranks do not fill nodes of {ranks_per_node}; use ranks_per_node={nearest}, or scheme=ddp"
        )
    return ranks_per_node


@collectives.register(HierarchicalExchangeOptions())
class HierarchicalAllReduce(Collective):
    """The sum in place on every rank, of which it sent one shard to other nodes (D-31).

    A rank sums one shard over its node, then one piece of that shard over the ranks of equal local index in all nodes,
    and both are gathered again. Messages go straight to their receivers, all of a phase at once; they are as many and
    as large as in rings, but arrive in four rounds. Ranks are added in their order, so replicas are bit-identical.
    """

    name = "hierarchical_all_reduce"
    summary = "dense all-reduce in nodes and across them; only a shard of each rank leaves the node"
    source = "D-31"
    additive_only = True
    blocking = True
    options: HierarchicalExchangeOptions

    def start(self, message: torch.Tensor, comm: Comm) -> Pending:
        """Return when `message` is the sum; it waits for other ranks in between."""
        size = node_size(self.options.ranks_per_node, comm.world_size)
        node, local = divmod(comm.rank, size)
        inside = range(node * size, (node + 1) * size)
        across = range(local, comm.world_size, size)
        shard = sum_of_part(comm, inside, message)
        piece = sum_of_part(comm, across, shard)
        gather_parts(comm, across, piece, shard)
        gather_parts(comm, inside, shard, message)
        return Pending(None, message)

    def phases(self, load: Load) -> tuple[Phase, ...]:
        """Return rank 0's messages, one after the other: 2 (g - 1) of a shard, 2 (nodes - 1) of a piece."""
        size = node_size(self.options.ranks_per_node, load.world_size)
        item_bytes = load.nbytes // load.numel if load.numel and load.nbytes % load.numel == 0 else 1
        nodes, items = load.world_size // size, load.nbytes // item_bytes
        shard = -(-items // size)
        piece = -(-shard // nodes)
        messages = (
            *((n, True, count) for n, count in _others(items, size)),
            *((n, False, count) for n, count in _others(shard, nodes)),
            (piece, False, nodes - 1),
            (shard, True, size - 1),
        )
        return tuple(Phase("send", item_bytes * n, inside, count) for n, inside, count in messages if n and count)


def _others(total: int, parts: int) -> list[tuple[int, int]]:
    """Return the sizes of all of `split_sizes` but the first, and how often each occurs."""
    small, longer = divmod(total, parts)
    return [(small + 1, longer - 1), (small, parts - longer)] if longer else [(small, parts - 1)]


def sum_of_part(
    comm: Comm, ranks: Sequence[int], vector: torch.Tensor, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Return the sum over `ranks`, this one included, of the part of `vector` that is this rank's.

    It is formed in `dtype`, or else in that of the vector, in which parts travel.
    """
    parts, own = vector.split(split_sizes(vector.numel(), len(ranks))), ranks.index(comm.rank)
    others = [position for position in range(len(ranks)) if position != own]
    received = {ranks[position]: torch.empty_like(parts[own]) for position in others}
    comm.swap({ranks[position]: parts[position] for position in others}, received).wait()
    total = torch.zeros_like(parts[own], dtype=dtype)
    for rank in ranks:
        total += received.get(rank, parts[own])
    return total


def gather_parts(comm: Comm, ranks: Sequence[int], own: torch.Tensor, vector: torch.Tensor) -> None:
    """Fill `vector` with the parts of `ranks`; `own` is this rank's."""
    parts = dict(zip(ranks, vector.split(split_sizes(vector.numel(), len(ranks))), strict=True))
    parts.pop(comm.rank).copy_(own)
    comm.swap(dict.fromkeys(parts, own), parts).wait()
