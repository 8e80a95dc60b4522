"""All-to-all and all-gather: every rank adds up one part of the vector and sends everybody the largest of it."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from ssfx.collectives.base import Load, Phase, collectives
from ssfx.collectives.pairs import BAD, COUNT_BYTES, pack, poisoned, record_bytes, take_largest, unpack
from ssfx.collectives.primitives import split_sizes, split_starts, to_peers, traffic
from ssfx.collectives.reducer import Reduced, Reducer, Reduction
from ssfx.core.lazy import torch

if TYPE_CHECKING:
    from ssfx.collectives.comm import Comm


@collectives.register()
class A2aAg(Reducer):
    """The divisible exchange of compressed gradients: HiPress's parameter servers, Espresso's "divisible" options.

    The vector is cut into one shard a rank. Every rank tells every other how many of its entries are for it (8 bytes,
    which also say whether the rank is bad), then sends the pairs. A shard's rank adds them in rank order, keeps its
    share of `kept` (at least one element of a shard that has any), leaves the rest in its own vector, and sends a
    record of fixed capacity, that of the largest share, to all. Source: D-50, D-51.
    """

    name = "a2a_ag"
    summary = "all-to-all of the selected elements, sum and new selection per shard, all-gather of the shards"
    source = "HiPress (CaSync-PS), Espresso; D-50, D-51"
    decodes_once = False

    def phases(self, load: Load) -> tuple[Phase, ...]:
        """Return what a rank goes through; counts and record headers are not charged."""
        share = load.numel / load.world_size
        compute = Phase("encode", share), Phase("decode", share)
        return Phase("all_to_all", load.nbytes), *compute, Phase("all_gather", load.nbytes / load.world_size)

    def reduce(self, work: Reduction, comm: Comm) -> Reduced:
        """Exchange counts, pairs and records; what a rank drops of its shard's sum is added to its own `vector`."""
        assert work.indices is not None
        assert work.values is not None
        p, rank = comm.world_size, comm.rank
        starts, sizes = split_starts(work.vector.numel(), p), split_sizes(work.vector.numel(), p)
        shares = [min(size, max(1, share)) for size, share in zip(sizes, split_sizes(work.kept, p), strict=True)]
        # One packed message per shard, with indices relative to its start.
        bounds = torch.searchsorted(work.indices, torch.tensor(starts, device=work.indices.device)).tolist()
        pieces = zip(pairwise(bounds), starts[:-1], strict=True)
        leaving = [pack(work.indices[a:b] - start, work.values[a:b]) for (a, b), start in pieces]
        counts = _swap_counts(comm, [BAD if work.bad else len(m) // 2 for m in leaving])
        used = to_peers([COUNT_BYTES] * p, rank)
        if BAD in counts:
            return poisoned(work.vector, used)

        arriving = [torch.empty(2 * count, dtype=torch.int32, device=work.vector.device) for count in counts]
        sends = {r: message for r, message in enumerate(leaving) if r != rank}
        comm.swap(sends, {r: message for r, message in enumerate(arriving) if r != rank}).wait()
        used += to_peers([4 * len(message) for message in leaving], rank)

        capacity = max(shares)
        record = torch.zeros(1 + 2 * capacity, dtype=torch.int32, device=work.vector.device)
        # The sum of the own shard, in rank order, of which the largest go to all.
        arriving[rank] = leaving[rank]
        shard = torch.zeros(sizes[rank], dtype=torch.float32, device=work.vector.device)
        for message in arriving:
            indices, values = unpack(message)
            shard[indices] += values
        indices, values = take_largest(shard, shares[rank])
        work.vector[starts[rank] : starts[rank + 1]] += shard
        record[0] = len(indices)
        record[1 : 1 + len(indices)] = indices
        record[1 + capacity : 1 + capacity + len(indices)] = values.view(torch.int32)
        rows = comm.all_gather(record).wait()
        sent = traffic("all_gather", record_bytes(capacity), p, rank)
        found, sums = [], []
        for row, count, start in zip(rows, rows[:, 0].tolist(), starts[:-1], strict=True):
            found.append(row[1 : 1 + count].long() + start)
            sums.append(row[1 + capacity : 1 + capacity + count].view(torch.float32))
        return Reduced(torch.cat(sums), torch.cat(found), work.indices.numel(), used + sent)


def _swap_counts(comm: Comm, counts: list[int]) -> list[int]:
    """Return how many entries every rank has for this one, BAD if it is bad."""
    own = torch.tensor(counts, dtype=torch.int64, device=comm.device)
    received = torch.zeros_like(own)
    received[comm.rank] = own[comm.rank]
    peers = [r for r in range(comm.world_size) if r != comm.rank]
    comm.swap({r: own[r : r + 1] for r in peers}, {r: received[r : r + 1] for r in peers}).wait()
    everyone: list[int] = received.tolist()
    return everyone
