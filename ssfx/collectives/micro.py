"""MiCRO: every rank selects in a part of the vector that is its own this step, and all ranks add their values there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssfx.collectives.base import Load, Phase, collectives
from ssfx.collectives.magnitudes import passing
from ssfx.collectives.pairs import COUNT_BYTES, gather_counts, gather_padded, poisoned
from ssfx.collectives.primitives import Traffic, split_starts, traffic
from ssfx.collectives.reducer import Reduced, Reducer, Reduction, State
from ssfx.compressors.hard_threshold import threshold_for
from ssfx.core.lazy import torch

if TYPE_CHECKING:
    from ssfx.collectives.comm import Comm

_HIGHEST_BIT, _LOWEST_BIT = 30, 15
"""Bits of a float32 that settling finds: the exponent and 8 bits of the mantissa, about a step of the threshold."""

WITHIN = 0.95
"""Share of k that the first threshold aims at: the middle of the band in which the threshold hardly moves."""


@collectives.register()
class Micro(Reducer):
    """The dense sum at indices that no two ranks select; a threshold steers their number (MiCRO, Algorithm 1).

    The paper caps nothing and leaves the first threshold open (section IV-C: it may be far off, and is corrected over
    iterations, of which a run has tens of thousands). Here the first step counts its way to a threshold, and a rank
    sends no more than its share, so that a run sends about the density asked for from its first step on.

    A rank that finds nothing in its part sends one element that rotates with the step, as in the authors' code.

    The step that rotates the parts counts exchanges that were kept, so that a skipped step leaves out no part.
    """

    name = "micro"
    summary = "disjoint selection in rotating parts, gather of the indices, all-reduce of the values"
    source = "Yoon & Oh 2023 (MiCRO), Algorithm 1, and kljp/micro; D-23"
    selects = True
    rules = ("topk",)
    state_names = ("threshold", "selected", "steps")

    def initial_state(self, numel: int, world_size: int) -> State:
        """Return the unit of the first threshold (the loss scale), how many were selected last, and the steps."""
        count = torch.zeros((), dtype=torch.int64)
        return {"threshold": torch.ones((), dtype=torch.float64), "selected": count, "steps": count.clone()}

    def phases(self, load: Load) -> tuple[Phase, ...]:
        """Counts, indices of equally full parts, and the values."""
        indices = Phase("all_gather", 4 * load.kept / load.world_size)
        return Phase("all_gather", COUNT_BYTES), indices, Phase("all_reduce", 4 * load.kept)

    def reduce(self, work: Reduction, comm: Comm) -> Reduced:
        """Take the values at what all ranks selected out of `vector` and sum them."""
        p, rank, state = comm.world_size, comm.rank, work.state
        # Algorithm 1: the partition of this rank, which rotates with t.
        starts, own = split_starts(work.vector.numel(), p), partition_of(rank, int(state["steps"]), p)
        part = work.vector[starts[own] : starts[own + 1]]
        # The threshold delta_t, scaled by how many reached the last one.
        used = self.follow(work, comm, part)
        # idx_t: where |acc| reaches delta_t inside the partition.
        if work.bad or work.kept == 0:
            chosen = torch.empty(0, dtype=torch.int64, device=part.device)
        else:
            chosen = passing(part, float(state["threshold"]), self.most(work.kept, p))
            if part.numel() and not chosen.numel():
                chosen = torch.tensor([int(state["steps"]) % part.numel()], device=part.device)
        chosen = chosen + starts[own]
        used += traffic("all_gather", COUNT_BYTES, p, rank)
        counts = gather_counts(comm, chosen.numel(), work.bad)
        if counts is None:
            return poisoned(work.vector, used)
        # All-gather of idx_t, then the dense sum of acc there; acc is 0 there afterwards.
        indices = torch.cat(gather_padded(comm, chosen.to(torch.int32), counts)).long()
        values = work.vector[indices]
        work.vector[indices] = 0
        comm.all_reduce(values).wait()
        used += traffic("all_gather", 4 * max(counts), p, rank)
        used += traffic("all_reduce", 4 * sum(counts), p, rank, item_bytes=4)
        state["selected"].fill_(sum(counts))
        state["steps"] += 1
        return Reduced(values, indices, sum(counts), used)

    def most(self, k: int, world_size: int) -> int:
        """Return how many elements a rank may send: its share of k."""
        return max(1, -(-k // world_size))

    def follow(self, work: Reduction, comm: Comm, part: torch.Tensor) -> Traffic:
        """Set the threshold of this step: the first one, or the last one scaled by how many reached it."""
        k, threshold = work.kept, work.state["threshold"]
        if k == 0:
            return Traffic(0, 0)
        if int(work.state["steps"]):
            threshold *= threshold_scale(int(work.state["selected"]), k)
        else:
            found, used = _settled(part, k, self.most(k, comm.world_size), work.bad, comm)
            # Nothing but zeros tells nothing: the authors' first threshold then.
            threshold.copy_(found) if found else threshold.mul_(threshold_for(k))
            return used
        return Traffic(0, 0)


def _settled(part: torch.Tensor, k: int, own: int, bad: bool, comm: Comm) -> tuple[torch.Tensor, Traffic]:
    """Return the largest threshold at which all ranks send about `k` elements, and what finding it sent.

    A rank sends at most `own`; where too few elements differ from zero for k, as many as there are stand for k.
    Magnitudes are ordered as their bits are, so that every count of all ranks settles one bit. The result is 0 if there
    are only zeros, or a rank is bad.
    """
    bits, found, wanted = part.abs().view(torch.int32), 0, 1.0
    used = Traffic(0, 0)
    for trial in (1, *(1 << position for position in range(_HIGHEST_BIT, _LOWEST_BIT - 1, -1))):
        counts = gather_counts(comm, min(own, int((bits >= found + trial).sum())), bad)
        used += traffic("all_gather", COUNT_BYTES, comm.world_size, comm.rank)
        if counts is None:
            return torch.zeros((), dtype=torch.float32), used
        if trial == 1:
            wanted = max(1.0, WITHIN * min(k, sum(counts)))
        elif sum(counts) >= wanted:
            found += trial
    return torch.tensor(found, dtype=torch.int32).view(torch.float32), used


def partition_of(rank: int, step: int, world_size: int) -> int:
    """Return the partition that `rank` selects from at `step`; no two ranks have the same one."""
    return (rank + step) % world_size


def threshold_scale(selected: int, k: int) -> float:
    """Return the factor of the threshold after all ranks together selected `selected` elements where `k` were wanted.

    Inside the band of a tenth the threshold always rises, as in the authors' code, until it leaves the band.
    Source: the rule of kljp/micro; D-23.
    """
    ratio = selected / k
    return 1.005 if ratio > 1.1 else 1.00125 if ratio > 0.909 else 0.995
