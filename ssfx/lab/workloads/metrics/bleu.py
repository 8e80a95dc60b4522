"""BLEU through sacrebleu, from counts of n-grams that ranks add up: BLEU of all sentences is no mean over sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ssfx.lab.workloads.metrics.tally import Tally

ORDER = 4


def bleu_tally(candidates: Sequence[str], references: Sequence[str]) -> Tally:
    """Return the n-gram counts of `candidates` against one reference each, with sacrebleu's 13a tokens (Post 2018)."""
    from sacrebleu.metrics.bleu import BLEU, BLEUScore

    if candidates:
        found = BLEU().corpus_score(list(candidates), [list(references)])
    else:  # a rank may have no sentence, and sacrebleu wants one
        found = BLEUScore(0.0, [0] * ORDER, [0] * ORDER, [0.0] * ORDER, 0.0, 0, 0)
    counts = {f"bleu_right{n}": float(found.counts[n]) for n in range(ORDER)}
    totals = {f"bleu_ngrams{n}": float(found.totals[n]) for n in range(ORDER)}
    return counts | totals | {"bleu_candidate": float(found.sys_len), "bleu_reference": float(found.ref_len)}


def bleu_of(tally: Mapping[str, float]) -> float:
    """Return BLEU in [0, 100] of the summed counts, smoothed as sacrebleu does by default."""
    from sacrebleu.metrics.bleu import BLEU

    score: float = BLEU.compute_bleu(
        correct=[int(tally[f"bleu_right{n}"]) for n in range(ORDER)],
        total=[int(tally[f"bleu_ngrams{n}"]) for n in range(ORDER)],
        sys_len=int(tally["bleu_candidate"]),
        ref_len=int(tally["bleu_reference"]),
        smooth_method="exp",
    ).score
    return score
