"""Index-union all-reduce: ranks agree on the union of what they selected, then sum all their values there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssfx.collectives.base import Load, Phase, collectives
from ssfx.collectives.pairs import COUNT_BYTES, gather_counts, gather_padded, poisoned
from ssfx.collectives.primitives import traffic
from ssfx.collectives.reducer import Reduced, Reducer, Reduction
from ssfx.core.lazy import torch

if TYPE_CHECKING:
    from ssfx.collectives.comm import Comm


@collectives.register()
class UnionAllReduce(Reducer):
    """At every index that some rank selected, the result is the dense sum, and no rank keeps anything (D-30)."""

    name = "union_all_reduce"
    summary = "gather of the indices, then an all-reduce of everybody's values at their union"
    source = "kljp/micro; D-30"

    def phases(self, load: Load) -> tuple[Phase, ...]:
        """Counts, indices, and the values of the union; without overlap it is the most that it can be."""
        union = min(load.numel, load.together(load.world_size))
        return Phase("all_gather", COUNT_BYTES), Phase("all_gather", 4 * load.kept), Phase("all_reduce", 4 * union)

    def reduce(self, work: Reduction, comm: Comm) -> Reduced:
        """Take the values at the union out of `vector` and sum them."""
        assert work.indices is not None
        assert work.values is not None
        p, rank = comm.world_size, comm.rank
        used = traffic("all_gather", COUNT_BYTES, p, rank)
        counts = gather_counts(comm, work.indices.numel(), work.bad)
        if counts is None:
            return poisoned(work.vector, used)
        work.vector[work.indices] += work.values
        union = torch.cat(gather_padded(comm, work.indices.to(torch.int32), counts)).long().unique()
        values = work.vector[union]
        work.vector[union] = 0
        comm.all_reduce(values).wait()
        used += traffic("all_gather", 4 * max(counts), p, rank)
        used += traffic("all_reduce", 4 * union.numel(), p, rank, item_bytes=4)
        return Reduced(values, union, union.numel(), used)
