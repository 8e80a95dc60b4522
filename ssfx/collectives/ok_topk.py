"""Ok-Topk: every rank sums one region of the vector, and a threshold says which sums all ranks receive.

What needs no other rank are functions: boundaries and balancing. Source: D-32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated

from ssfx.collectives.base import Load, Phase, collectives, merging
from ssfx.collectives.magnitudes import CAP, among, kth_magnitude, passing
from ssfx.collectives.pairs import BAD, COUNT_BYTES, PAIR_BYTES, gather_counts, pack, poisoned, unpack
from ssfx.collectives.primitives import Traffic, split_sizes, split_starts, to_peers, traffic
from ssfx.collectives.reducer import Reduced, Reducer, Reduction, State
from ssfx.core.lazy import torch
from ssfx.core.spec import Bounded

if TYPE_CHECKING:
    from ssfx.collectives.comm import Comm


def boundary_proposals(chosen: torch.Tensor, numel: int, world_size: int) -> torch.Tensor:
    """Return int64 [P - 1]: the inner boundaries that would give every region an equal share of `chosen`."""
    count = chosen.numel()
    if count == 0:
        return torch.tensor(split_starts(numel, world_size)[1:-1], dtype=torch.int64)
    return chosen[torch.arange(1, world_size, device=chosen.device) * (count // world_size)].cpu()


def needs_balance(counts: Sequence[int], times: float) -> bool:
    """True when the fullest rank has more than so many times the mean, so that entries are moved first."""
    return max(counts) * len(counts) > times * sum(counts)


def balanced_counts(counts: Sequence[int]) -> list[int]:
    """Return how many entries every rank has after balancing."""
    return split_sizes(sum(counts), len(counts))


def balance_moves(counts: Sequence[int]) -> list[list[int]]:
    """Return moves[source][target]: how many entries go where, so that the concatenation of all lists stays as it is.

    Source r holds the r-th interval of the concatenation; target t is to hold the t-th of nearly equal ones.
    """
    held, wanted = [0], [0]
    for have, want in zip(counts, balanced_counts(counts), strict=True):
        held.append(held[-1] + have)
        wanted.append(wanted[-1] + want)
    ranks = range(len(counts))
    return [[max(0, min(held[s + 1], wanted[t + 1]) - max(held[s], wanted[t])) for t in ranks] for s in ranks]


Entries = tuple["torch.Tensor", "torch.Tensor"]


@dataclass(frozen=True)
class OkTopkOptions(Bounded):
    """Both thresholds are evaluated every `tau_prime` steps, the boundaries of regions every `tau` steps."""

    tau_prime: Annotated[int, 1] = 32
    tau: Annotated[int, 1] = 64


@collectives.register(OkTopkOptions())
class OkTopk(Reducer):
    """About the k largest sums of what ranks selected, for some 4 k words per rank at any world size (D-32).

    The steps that periods count are exchanges that were kept. Thresholds gone stale are evaluated in the next step.
    """

    name = "ok_topk"
    summary = "regions of equal work sum what was selected; sums above a global threshold are gathered"
    source = "Li & Hoefler 2022 (Ok-Topk); D-32"
    selects = True
    rules = ("topk",)
    state_names = ("threshold_local", "threshold_global", "boundaries", "steps", "stale")

    options: OkTopkOptions
    balance_from = 4.0
    """Entries are spread over ranks before they are gathered when one has more than so many times the mean."""

    def initial_state(self, numel: int, world_size: int) -> State:
        """Return thresholds and boundaries that the first step sets; the local threshold is this rank's own."""
        return {
            "threshold_local": torch.zeros((), dtype=torch.float64),
            "threshold_global": torch.zeros((), dtype=torch.float64),
            "boundaries": torch.tensor(split_starts(numel, world_size), dtype=torch.int64),
            "steps": torch.zeros((), dtype=torch.int64),
            "stale": torch.zeros((), dtype=torch.int64),
        }

    def phases(self, load: Load) -> tuple[Phase, ...]:
        """Return a step between evaluations, balanced; evaluations and boundaries add their share to the last gather.

        An evaluation gathers all sums, min(n, P k) without overlap, instead of k; the boundaries' all-reduce counts as
        the gather of as many bytes. Computed on the way: the sum of what arrived for this rank's region, and the
        selection from it by the global threshold; the local selection is the compressor call before the exchange.
        """
        p, k = load.world_size, load.kept
        sums = min(load.numel, load.together(p))
        gathered = PAIR_BYTES * (k + (sums - k) / self.options.tau_prime) / p
        boundaries = 2 * COUNT_BYTES * (p - 1) / p / self.options.tau
        return (
            Phase("all_to_all", COUNT_BYTES * p),
            Phase("all_to_all", PAIR_BYTES * k),
            merging(load, k),
            Phase("encode", load.numel / p),
            Phase("all_gather", COUNT_BYTES),
            Phase("all_gather", gathered + boundaries),
        )

    def reduce(self, work: Reduction, comm: Comm) -> Reduced:
        """Select, sum this rank's region, gather the largest sums, and clear what was both selected and gathered."""
        vector, k, state = work.vector, work.kept, work.state
        step = int(state["steps"])
        evaluates = step % self.options.tau_prime == 0 or bool(state["stale"])
        # Algorithm 1: the local top-k, by a threshold that is evaluated every tau' steps.
        chosen = self.select(work, evaluates)
        used = Traffic(0, 0)
        if step % self.options.tau == 0 and comm.world_size > 1:
            used += self.repartition(chosen, vector.numel(), state, comm)
        # Split and reduce: every rank sums its own region.
        region, most, sent = self.sum_region(chosen, work, comm)
        used += sent
        if region is None:
            return poisoned(vector, used)
        # Balance and all-gather: what reaches the global threshold goes to all.
        threshold = 0.0 if evaluates else float(state["threshold_global"])
        found = passing(region, threshold, most)
        own = (found + int(state["boundaries"][comm.rank]), region[found])
        (indices, values), sent = self.gather(own, evaluates, comm)
        used += sent
        if evaluates:
            indices, values = self.evaluate(indices, values, k, state)
        # The intersection of local and global top-k leaves the memory.
        vector[chosen[among(chosen, indices)]] = 0
        state["stale"].fill_(indices.numel() == 0 or (not evaluates and indices.numel() > 2 * k))
        state["steps"] += 1
        return Reduced(values, indices, chosen.numel(), used)

    def select(self, work: Reduction, evaluates: bool) -> torch.Tensor:
        """Return what this rank selects, ascending; the local threshold becomes that of the next step."""
        vector, k, threshold = work.vector, work.kept, float(work.state["threshold_local"])
        if work.bad:
            return torch.empty(0, dtype=torch.int64, device=vector.device)
        if evaluates:
            threshold = kth_magnitude(vector, k)
        chosen = passing(vector, threshold, CAP * k)
        work.state["threshold_local"].fill_(threshold)
        return chosen

    def repartition(self, chosen: torch.Tensor, numel: int, state: State, comm: Comm) -> Traffic:
        """Move the boundaries to the average of what ranks propose; they stay sorted, regions may become empty."""
        proposals = boundary_proposals(chosen, numel, comm.world_size).to(comm.device)
        comm.all_reduce(proposals).wait()
        state["boundaries"][1:-1] = (proposals // comm.world_size).cpu()
        return traffic("all_reduce", COUNT_BYTES * proposals.numel(), comm.world_size, comm.rank, COUNT_BYTES)

    def sum_region(self, chosen: torch.Tensor, work: Reduction, comm: Comm) -> tuple[torch.Tensor | None, int, Traffic]:
        """Return this rank's region of the sum, None if a rank is bad; how many elements it can have; what was sent.

        Contributions are added in the order r, r-1, r-2, ...
        """
        p, rank = comm.world_size, comm.rank
        bounds: list[int] = work.state["boundaries"].tolist()
        cuts = torch.searchsorted(chosen, work.state["boundaries"].to(chosen.device)).tolist()
        parts = [chosen[lo:hi] for lo, hi in pairwise(cuts)]
        counts = [part.numel() for part in parts]
        arriving = _exchange_counts(counts, work.bad, comm)
        used = to_peers([COUNT_BYTES] * p, rank)
        if BAD in arriving:
            return None, 0, used
        messages = [pack(part - bounds[r], work.vector[part]) for r, part in enumerate(parts)]
        received = _exchange(messages, arriving, comm)
        region = torch.zeros(bounds[rank + 1] - bounds[rank], dtype=torch.float32, device=work.vector.device)
        for s in range(p):
            where, values = unpack(received[(rank - s) % p])
            region[where] += values
        return region, sum(arriving), used + to_peers([PAIR_BYTES * count for count in counts], rank)

    def gather(self, own: Entries, evaluates: bool, comm: Comm) -> tuple[Entries, Traffic]:
        """Return the entries of all ranks, ascending by index, and what this rank sent; balanced if that is due.

        An evaluation is not balanced: it gathers everything, which the boundaries have balanced.
        """
        p, rank = comm.world_size, comm.rank
        message = pack(*own)
        counts = gather_counts(comm, own[0].numel(), bad=False)
        assert counts is not None
        used = traffic("all_gather", COUNT_BYTES, p, rank)
        if not evaluates and needs_balance(counts, self.balance_from):
            moves = balance_moves(counts)
            message = self.balance(own, moves, comm)
            used += to_peers([PAIR_BYTES * count for count in moves[rank]], rank)
            counts = balanced_counts(counts)
        used += to_peers([PAIR_BYTES * counts[rank]] * p, rank)
        return _joined(_exchange([message] * p, counts, comm)), used

    def balance(self, own: Entries, moves: list[list[int]], comm: Comm) -> torch.Tensor:
        """Return this rank's share of the concatenation of all lists, packed."""
        outgoing = moves[comm.rank]
        messages = [pack(*part) for part in zip(*(part.split(outgoing) for part in own), strict=True)]
        return pack(*_joined(_exchange(messages, [row[comm.rank] for row in moves], comm)))

    def evaluate(self, indices: torch.Tensor, values: torch.Tensor, k: int, state: State) -> Entries:
        """Return the k largest of all sums, with all ties; the smallest of them is the threshold."""
        threshold = kth_magnitude(values, k)
        state["threshold_global"].fill_(threshold)
        keep = passing(values, threshold, values.numel())
        return indices[keep], values[keep]


def _exchange_counts(counts: Sequence[int], bad: bool, comm: Comm) -> list[int]:
    """Return how many entries come from each rank; BAD from a rank whose vector is not finite."""
    own = torch.tensor([BAD] * len(counts) if bad else counts, dtype=torch.int64, device=comm.device)
    arriving = own.clone()
    peers = [r for r in range(comm.world_size) if r != comm.rank]
    comm.swap({r: own[r : r + 1] for r in peers}, {r: arriving[r : r + 1] for r in peers}).wait()
    result: list[int] = arriving.tolist()
    return result


def _exchange(messages: Sequence[torch.Tensor], counts: Sequence[int], comm: Comm) -> list[torch.Tensor]:
    """Send messages[r] to rank r; return the packed pairs of all ranks, counts[r] from rank r."""
    arriving = [torch.empty(2 * count, dtype=torch.int32, device=comm.device) for count in counts]
    peers = [r for r in range(comm.world_size) if r != comm.rank]
    comm.swap({r: messages[r] for r in peers}, {r: arriving[r] for r in peers}).wait()
    arriving[comm.rank] = messages[comm.rank]
    return arriving


def _joined(messages: Sequence[torch.Tensor]) -> Entries:
    """Return the entries of several messages, in their order."""
    indices, values = zip(*(unpack(message) for message in messages), strict=True)
    return torch.cat(indices), torch.cat(values)
