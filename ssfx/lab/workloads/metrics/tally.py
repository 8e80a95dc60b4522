"""Sums over held-out samples, which ranks add up, and the metrics that follow from them. No torch."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Tally = dict[str, float]
"""Sums over some held-out samples by name; the tallies of disjoint samples may be added."""


@dataclass(frozen=True)
class Quality:
    """One metric of quality: `words` for an axis, whether higher is better, and the sums it is computed from."""

    words: str
    higher_is_better: bool
    sums: tuple[str, ...]
    of: Callable[..., float]


def _exp(total: float, count: float) -> float:
    mean = total / count
    return math.exp(mean) if mean < 700 else math.inf


def _share(part: float, whole: float) -> float:
    return part / whole


QUALITY: dict[str, Quality] = {
    "top1": Quality("top-1 accuracy", True, ("right1", "samples"), _share),
    "top5": Quality("top-5 accuracy", True, ("right5", "samples"), _share),
    "f1": Quality("F1 of the answer's words", True, ("f1_sum", "questions"), _share),
    "exact_match": Quality("exact match", True, ("exact_sum", "questions"), _share),
    "bleu": Quality("BLEU", True, (), lambda: 0.0),
    "perplexity": Quality("perplexity per token", False, ("nats", "tokens"), _exp),
    "perplexity_per_word": Quality("perplexity per word", False, ("nats", "words"), _exp),
}
"""Metrics of quality by name (keys of ssfx.core.rows.METRICS), the one that judges a task first.

Accuracy, F1 and exact match are fractions in [0, 1]; a perplexity is the exponential of the mean negative
log-likelihood in nats; BLEU is in [0, 100], from counts of n-grams (ssfx.lab.workloads.metrics.bleu).
"""


def added(one: Mapping[str, float], other: Mapping[str, float]) -> Tally:
    """Return the tally of both samples; a name that is missing in one counts as 0 there."""
    return {name: one.get(name, 0.0) + other.get(name, 0.0) for name in {**one, **other}}


def quality_of(tally: Mapping[str, float]) -> dict[str, float]:
    """Return every metric whose sums are in `tally`, in the order of QUALITY."""
    found = {
        name: quality.of(*(tally[key] for key in quality.sums))
        for name, quality in QUALITY.items()
        if quality.sums and all(key in tally for key in quality.sums) and tally[quality.sums[-1]] > 0
    }
    if "bleu_candidate" in tally:
        from ssfx.lab.workloads.metrics.bleu import bleu_of

        found["bleu"] = bleu_of(tally)
    return found


def better(metric: str, value: float, than: float) -> bool:
    """Return whether `value` is at least as good as `than` in `metric`."""
    return value >= than if QUALITY[metric].higher_is_better else value <= than
