"""Predicted against actual: errors, bias, and whether comparisons come out the right way round."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from experiments.common.claims.grouped import grouped
from ssfx.core.lazy import statistics

TELLING_GAP = 0.05
"""A pair of schemes whose actual times differ by more than this share must be predicted in the right order."""


@dataclass(frozen=True)
class Pair:
    """One prediction and what it is held against, in seconds (or another unit that both share).

    `panel` names what may be compared with each other, such as one model on one cluster; `label` is the scheme in it.
    `spread` is the actual value's own relative spread where it is known (p90 - p10 over the median), `claim` the id of
    the claim that states it, if one does. whole_step: it is about iterations, not about a part of them. `sent` are the
    ways in which its steps sent gradients (`ssfx.advice.sending`), `network` the kind of network; empty if not said.
    """

    panel: str
    label: str
    predicted: float
    actual: float
    spread: float | None = None
    extrapolated: bool = False
    claim: str = ""
    whole_step: bool = True
    sent: tuple[str, ...] = ()
    network: str = ""

    @property
    def error(self) -> float:
        """Return predicted / actual - 1."""
        return self.predicted / self.actual - 1


@dataclass(frozen=True)
class Inversion:
    """Two schemes whose actual gap matters and whose order the prediction gets wrong; `gap` is relative."""

    panel: str
    faster: str
    slower: str
    gap: float
    predicted_gap: float


@dataclass(frozen=True)
class Scores:
    """What a set of pairs says: mean, median and maximum of |error|, bias = mean error, Kendall tau of the orders.

    `tau` is the mean over panels of at least two schemes (tau-b: ties count for neither), None without such a panel.
    Of `orderings` pairs of a panel whose actual gap matters, `ordered` are predicted the right way round.
    """

    count: int
    mean: float
    median: float
    maximum: float
    bias: float
    tau: float | None
    worst: Pair
    inversions: tuple[Inversion, ...]
    ordered: int
    orderings: int


def percent(share: float | None, form: str = ".1f") -> str:
    """Return a share in percent, "-" for none."""
    return "-" if share is None else f"{100 * share:{form}} %"


def score(pairs: Sequence[Pair]) -> Scores:
    """Return the scores of at least one pair."""
    errors = [abs(pair.error) for pair in pairs]
    panels = grouped(pairs, lambda pair: pair.panel)
    taus = [tau for panel in panels.values() if (tau := kendall_tau(panel)) is not None]
    found = [inversion for panel in panels.values() for inversion in inversions(panel)]
    apart = [one for panel in panels.values() for one in orderings(panel)]
    return Scores(
        len(pairs),
        float(statistics.fmean(errors)),
        float(statistics.median(errors)),
        max(errors),
        float(statistics.fmean(pair.error for pair in pairs)),
        float(statistics.fmean(taus)) if taus else None,
        max(pairs, key=lambda pair: abs(pair.error)),
        tuple(sorted(found, key=lambda one: -one.gap)),
        sum(apart),
        len(apart),
    )


def by_way(pairs: Iterable[Pair]) -> dict[tuple[str, str], list[Pair]]:
    """Return the pairs by way of sending and kind of network, those of several ways in several groups."""
    sent = grouped(((way, pair) for pair in pairs for way in pair.sent), lambda one: (one[0], one[1].network))
    return {key: [pair for _, pair in own] for key, own in sent.items()}


def kendall_tau(panel: Sequence[Pair]) -> float | None:
    """Return Kendall's tau-b between predicted and actual of one panel; None when it is not defined."""
    if len({pair.predicted for pair in panel}) < 2 or len({pair.actual for pair in panel}) < 2:
        return None
    from scipy.stats import kendalltau  # late: it takes a second to import

    return float(kendalltau([pair.predicted for pair in panel], [pair.actual for pair in panel]).statistic)


def inversions(panel: Iterable[Pair]) -> list[Inversion]:
    """Return the pairs of a panel whose actual gap matters and that are predicted in the wrong order."""
    found = []
    for fast, slow in _telling(panel):
        if fast.predicted > slow.predicted:
            gap, predicted_gap = slow.actual / fast.actual - 1, slow.predicted / fast.predicted - 1
            found.append(Inversion(fast.panel, fast.label, slow.label, gap, predicted_gap))
    return found


def orderings(panel: Iterable[Pair]) -> list[bool]:
    """Return for every two of a panel whose actual gap matters whether they are predicted in the right order."""
    return [fast.predicted < slow.predicted for fast, slow in _telling(panel)]


def _telling(panel: Iterable[Pair]) -> Iterator[tuple[Pair, Pair]]:
    """Yield every two of a panel whose actual gap matters, the faster one first."""
    for fast, slow in combinations(sorted(panel, key=lambda pair: pair.actual), 2):
        if slow.actual / fast.actual - 1 > TELLING_GAP:
            yield fast, slow
