"""MergeComp's objective and Algorithm 2: the best cuts for one more group, until one more gains too little.

Source: D-47 (MergeComp, Algorithm 2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import TYPE_CHECKING

from ssfx.core.lazy import numpy as np
from ssfx.schemes.search.contiguous_groups import JointModel
from ssfx.schemes.search.exact_groups import TICK_S, best_by_count

if TYPE_CHECKING:
    from ssfx.schemes.search.exact_groups import Array, Ints


@dataclass(frozen=True)
class Terms:
    """The paper's objective for one or many groupings: total = backward + compression + exchange - hidden, in seconds.

    compression: encodes and decodes. hidden: the part of the exchange during backward and encodes.
    """

    backward_s: float
    compression_s: Array
    exchange_s: Array
    hidden_s: Array

    @property
    def total_s(self) -> Array:
        """The predicted end of the step."""
        return self.backward_s + self.compression_s + self.exchange_s - self.hidden_s


@dataclass(frozen=True)
class SearchResult:
    """The best cuts for some number of groups, in pieces (`JointModel`), and the predicted end."""

    cuts: tuple[int, ...]
    total_s: float


def algorithm_2(bests: Iterable[SearchResult], alpha_stop: float) -> SearchResult:
    """Return the one of the `bests` for 1, 2, 3, ... groups at which the paper's search stops.

    A number of groups that gains nothing is not taken; one that gains less than the share `alpha_stop` is the last.
    """
    bests = iter(bests)
    best = next(bests)
    for found in bests:
        if found.total_s > best.total_s - TICK_S:
            return best
        gain, best = 1 - found.total_s / best.total_s, found
        if gain < alpha_stop:
            return best
    return best


def terms(model: JointModel, cuts: Sequence[Ints]) -> Terms:
    """Return the objective of groupings cut at `cuts`: one array per cut, all of the same length."""
    ends = [*cuts, np.full_like(cuts[0], model.num_pieces)] if cuts else [np.array([model.num_pieces])]
    starts = [np.zeros_like(ends[0]), *ends[:-1]]
    sizes = [model.numel[b] - model.numel[a] for a, b in zip(starts, ends, strict=True)]
    curves = model.curves
    # h(x_i), compressing and decoding a group of x_i elements, and g(x_i), exchanging it.
    encode_s, decode_s, exchange_s = (
        [curve(size) for size in sizes] for curve in (curves["encode"], curves["decode"], curves["message"])
    )
    # p(x_i), what of g(x_i) is hidden: until the last group is computed, A + sum h, one exchange at a time.
    compute_s = [model.ready_s[b] + encoded for b, encoded in zip(ends, accumulate(encode_s), strict=True)]
    hidden_s, free_s = np.zeros(len(ends[0])), np.zeros(len(ends[0]))
    for ready_s, seconds in zip(compute_s, exchange_s, strict=True):
        start_s = np.maximum(ready_s, free_s)
        free_s = start_s + seconds
        hidden_s += np.maximum(0.0, np.minimum(free_s, compute_s[-1]) - start_s)
    return Terms(float(model.ready_s[-1]), np.sum([*encode_s, *decode_s], 0), np.sum(exchange_s, 0), hidden_s)


def _best(model: JointModel, cuts: Sequence[Ints]) -> SearchResult:
    total_s = terms(model, cuts).total_s
    at = int(np.argmin(np.rint(total_s / TICK_S)))
    return SearchResult(tuple(int(cut[at]) for cut in cuts), float(total_s[at]))


def exhaustive(model: JointModel, max_groups: int) -> Iterator[SearchResult]:
    """Yield the best cuts into exactly 1, 2, ... `max_groups` groups; up to two, every cut is tried.

    More groups are searched exactly among the cuts of `fusion_search` (all of them up to MAX_CUTS tensors).
    """
    yield _best(model, [])
    if max_groups > 1:
        yield _best(model, [np.arange(1, model.num_pieces)])
    if max_groups > 2:
        gap_s, numel = np.diff(model.ready_s).tolist(), np.diff(model.numel).tolist()
        for fusion in islice(best_by_count(gap_s, numel, **model.curves), 2, max_groups):
            yield SearchResult(fusion.stops[:-1], fusion.total_s)


def search_last_cut(end_s: Callable[[Ints], Array], lo: Ints, hi: Ints) -> tuple[Ints, Array]:
    """Return for every pair of bounds the best cut probed and its end, on the premise that ends fall, then rise.

    All pairs are searched in step, so that `end_s` sees arrays; those that are done keep probing where they ended.
    """
    cut, best_s = lo, np.full(len(lo), np.inf)

    def probe(at: Ints) -> Array:
        nonlocal cut, best_s
        found_s = end_s(at)
        better = found_s < best_s - TICK_S
        cut, best_s = np.where(better, at, cut), np.where(better, found_s, best_s)
        return found_s

    while (lo < hi).any():
        middle = (lo + hi) // 2
        falls = probe(middle) > probe(np.minimum(middle + 1, hi))
        open_ = lo < hi
        lo, hi = np.where(open_ & falls, middle + 1, lo), np.where(open_ & ~falls, middle, hi)
    probe(lo)
    return cut, best_s
