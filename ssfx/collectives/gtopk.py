"""gTop-k: ranks merge their top k in pairs along a tree, keep the k largest sums, and one rank sends all the result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssfx.collectives.base import Load, Phase, collectives, merging
from ssfx.collectives.magnitudes import among
from ssfx.collectives.pairs import BAD, pack, poisoned, unpack
from ssfx.collectives.primitives import Traffic, rounds, traffic
from ssfx.collectives.reducer import Reduced, Reducer, Reduction
from ssfx.compressors.sparse import top_k
from ssfx.core.lazy import torch

if TYPE_CHECKING:
    from ssfx.collectives.comm import Comm

Entries = tuple["torch.Tensor", "torch.Tensor"]


@collectives.register()
class GTopK(Reducer):
    """About the k largest sums, by 2 log2(P) messages of k pairs on the critical path (D-37).

    A rank that drops a sum keeps it if the index returns through another branch; in the released code it is lost.
    """

    name = "gtopk"
    summary = "binary tree of merges that keep k sums each, then a broadcast"
    source = "Shi et al. 2019 (gTop-k); D-37"
    selects = True
    rules = ("topk",)

    def phases(self, load: Load) -> tuple[Phase, ...]:
        """Return the critical path: a record per round, merged and selected from again, then the broadcast."""
        nbytes = _record_bytes(load.kept)
        step = Phase("send", nbytes), merging(load, load.kept), Phase("encode", 2 * load.kept)
        return (*step * rounds(load.world_size), Phase("broadcast", nbytes))

    def reduce(self, work: Reduction, comm: Comm) -> Reduced:
        """Select the k largest, merge with the partners' lists, and clear what is in the final one."""
        vector, k = work.vector, min(work.kept, work.vector.numel())
        chosen = torch.empty(0, dtype=torch.int64, device=vector.device) if work.bad else _largest(vector, k)
        record, dropped, used = self._merge((chosen, vector[chosen]), k, work.bad, comm)
        comm.broadcast(record).wait()
        used += traffic("broadcast", _record_bytes(k), comm.world_size, comm.rank)
        if int(record[0]) == BAD:
            return poisoned(vector, used)
        indices, values = _read(record)
        vector[chosen[among(chosen, indices)]] = 0
        for where, sums in dropped:
            back = among(where, indices)
            vector[where[back]] += sums[back]
        return Reduced(values, indices, chosen.numel(), used)

    def _merge(self, own: Entries, k: int, bad: bool, comm: Comm) -> tuple[torch.Tensor, list[Entries], Traffic]:
        """Return this rank's last record (rank 0's is the result), what it dropped on the way, and what it sent."""
        dropped: list[Entries] = []
        record = _write(own, k, bad)
        step = 1
        while step < comm.world_size:
            if comm.rank % (2 * step):
                comm.swap({comm.rank - step: record}, {}).wait()
                return record, dropped, Traffic(1, _record_bytes(k))
            if comm.rank + step < comm.world_size:
                theirs = torch.empty_like(record)
                comm.swap({}, {comm.rank + step: theirs}).wait()
                bad = bad or int(theirs[0]) == BAD
                if not bad:
                    own, rest = merged(own, _read(theirs), k)
                    dropped.append(rest)
                record = _write(own, k, bad)
            step *= 2
        return record, dropped, Traffic(0, 0)


def merged(mine: Entries, theirs: Entries, k: int) -> tuple[Entries, Entries]:
    """Return the k largest sums of two lists, ascending by index, and all others."""
    indices, place = torch.cat([mine[0], theirs[0]]).unique(return_inverse=True)
    sums = torch.zeros(indices.numel(), dtype=torch.float32, device=indices.device)
    sums[place[: mine[0].numel()]] = mine[1]
    sums[place[mine[0].numel() :]] += theirs[1]
    keep = torch.zeros(indices.numel(), dtype=torch.bool, device=indices.device)
    keep[_largest(sums, k)] = True
    return (indices[keep], sums[keep]), (indices[~keep], sums[~keep])


def _largest(a: torch.Tensor, k: int) -> torch.Tensor:
    """Return where the k largest magnitudes are, without zeros; ascending."""
    chosen = top_k(a, k)
    return chosen[a[chosen] != 0]


def _record_bytes(k: int) -> int:
    """Bytes of a record of up to `k` pairs; a fixed size, so that receivers know it (D-28)."""
    return 4 * (1 + 2 * k)


def _write(entries: Entries, k: int, bad: bool) -> torch.Tensor:
    """Return int32 [1 + 2 k]: the count, or BAD, then the pairs, then zeros."""
    pairs = pack(*entries)
    record = torch.zeros(1 + 2 * k, dtype=torch.int32, device=pairs.device)
    record[0] = BAD if bad else entries[0].numel()
    record[1 : 1 + pairs.numel()] = pairs
    return record


def _read(record: torch.Tensor) -> Entries:
    return unpack(record[1 : 1 + 2 * int(record[0])])
