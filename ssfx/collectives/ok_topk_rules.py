"""The rules of Ok-Topk that need no other rank: selection, boundaries of regions, drifting thresholds, balancing.

Source: D-32; Li & Hoefler 2022 and their released code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from ssfx.collectives.primitives import split_sizes, split_starts
from ssfx.core.lazy import torch

TIGHTEN_FACTOR = 1.03
TIGHTEN_TIMES = 5
BALANCE_FROM = 4
"""`balance=auto` moves entries when the fullest rank has more than this many times the mean."""


@dataclass(frozen=True)
class Drift:
    """A threshold that follows the count: divided by `lower` below `low` k, multiplied by `higher` above `high` k."""

    low: Fraction
    high: Fraction
    lower: float
    higher: float

    def next(self, threshold: float, count: int, k: int) -> float:
        """Return the threshold of the next step after `count` elements were found where `k` were wanted."""
        if count < self.low * k:
            return threshold / self.lower
        return threshold * self.higher if count > self.high * k else threshold


@dataclass(frozen=True)
class Authors:
    """What one of the released codes does to thresholds between evaluations; they compare strictly.

    tighten: the local threshold rises before selection while more than floor(tighten * k) elements pass; 0 never.
    """

    local: Drift
    total: Drift
    tighten: Fraction


MODES: dict[str, Authors | None] = {
    "canonical": None,
    "authors_vgg": Authors(
        Drift(Fraction(2, 3), Fraction(5, 4), 1.012, 1.012),
        Drift(Fraction(2, 3), Fraction(4, 3), 1.008, 1.008),
        Fraction(4, 3),
    ),
    "authors_lstm": Authors(
        Drift(Fraction(3, 4), Fraction(5, 4), 1.012, 1.012),
        Drift(Fraction(3, 4), Fraction(5, 4), 1.010, 1.008),
        Fraction(3, 2),
    ),
    "authors_bert": Authors(
        Drift(Fraction(4, 5), Fraction(5, 4), 1.025, 1.025),
        Drift(Fraction(4, 5), Fraction(5, 4), 1.036, 1.025),
        Fraction(0),
    ),
}


def tightened(magnitudes: torch.Tensor, threshold: float, limit: Fraction, k: int) -> float:
    """Return the threshold after at most five rises, while more than floor(limit * k) of `magnitudes` are above it."""
    for _ in range(TIGHTEN_TIMES):
        if int((magnitudes > threshold).sum()) <= math.floor(limit * k):
            break
        threshold *= TIGHTEN_FACTOR
    return threshold


def boundary_proposals(chosen: torch.Tensor, numel: int, world_size: int) -> torch.Tensor:
    """Return int64 [P - 1]: the inner boundaries that would give every region an equal share of `chosen`."""
    count = chosen.numel()
    if count == 0:
        return torch.tensor(split_starts(numel, world_size)[1:-1], dtype=torch.int64)
    return chosen[torch.arange(1, world_size, device=chosen.device) * (count // world_size)].cpu()


def needs_balance(balance: str, counts: Sequence[int]) -> bool:
    """True when the entries of the ranks are to be moved before they are gathered."""
    if balance == "auto":
        return max(counts) * len(counts) > BALANCE_FROM * sum(counts)
    return balance == "always"


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
