"""MiCRO: every rank selects in a part of the vector that is its own this step, and all ranks add their values there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ssfx.collectives.base import Load, Phase, collectives
from ssfx.collectives.magnitudes import CAP, passing
from ssfx.collectives.pairs import COUNT_BYTES, gather_counts, gather_padded, poisoned
from ssfx.collectives.primitives import split_starts, traffic
from ssfx.collectives.reducer import Reduced, Reducer, Reduction, State
from ssfx.compressors.hard_threshold import threshold_for
from ssfx.core.lazy import torch

if TYPE_CHECKING:
    from ssfx.collectives.comm import Comm


@dataclass(frozen=True)
class MicroOptions:
    """`delta0`: the first threshold, for gradients as they are without a loss scale; 0: the authors' 1 / (2 sqrt(k)).

    `force_one`: a rank that finds nothing in its part sends one element that rotates with the step, as the authors do.
    """

    delta0: float = 0.0
    force_one: bool = True

    def __post_init__(self) -> None:
        if self.delta0 < 0:
            raise ValueError(f"delta0 must not be negative, got {self.delta0:g}")


@collectives.register(MicroOptions())
class Micro(Reducer):
    """The dense sum at indices that no two ranks select; a threshold steers their number (MiCRO, Algorithm 1).

    The step that rotates the parts counts exchanges that were kept, so that a skipped step leaves out no part.
    """

    name = "micro"
    summary = "disjoint selection in rotating parts, gather of the indices, all-reduce of the values"
    source = "Yoon & Oh 2023 (MiCRO), Algorithm 1, and kljp/micro; D-23"
    selects = True
    rules = ("topk",)
    state_names = ("threshold", "selected", "steps")

    def __init__(self, options: MicroOptions) -> None:
        self.options = options

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
        chosen = self._select(work, p, rank)
        used = traffic("all_gather", COUNT_BYTES, p, rank)
        counts = gather_counts(comm, chosen.numel(), work.bad)
        if counts is None:
            return poisoned(work.vector, used)
        indices = torch.cat(gather_padded(comm, chosen.to(torch.int32), counts)).long()
        values = work.vector[indices]
        work.vector[indices] = 0
        comm.all_reduce(values).wait()
        used += traffic("all_gather", 4 * max(counts), p, rank)
        used += traffic("all_reduce", 4 * sum(counts), p, rank, item_bytes=4)
        state["selected"].fill_(sum(counts))
        state["steps"] += 1
        return Reduced(values, indices, sum(counts), used)

    def _select(self, work: Reduction, world_size: int, rank: int) -> torch.Tensor:
        """Return what this rank selects in its part, ascending; the threshold has followed the last count."""
        step, k, threshold = int(work.state["steps"]), work.kept, work.state["threshold"]
        if work.bad or k == 0:
            return torch.empty(0, dtype=torch.int64, device=work.vector.device)
        if step == 0:
            threshold *= self.options.delta0 or threshold_for(k)
        else:
            threshold *= threshold_scale(int(work.state["selected"]), k)
        starts, own = split_starts(work.vector.numel(), world_size), partition_of(rank, step, world_size)
        part = work.vector[starts[own] : starts[own + 1]]
        chosen = passing(part, float(threshold), CAP * k)
        if self.options.force_one and part.numel() and not chosen.numel():
            chosen = torch.tensor([step % part.numel()], device=part.device)
        return chosen + starts[own]


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
