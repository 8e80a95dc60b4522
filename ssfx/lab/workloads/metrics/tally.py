"""Sums over held-out samples, which ranks add up, and the metrics that follow from them. No torch.

Answers are compared after the normalisation of SQuAD's official scorer; BLEU is sacrebleu's, from counts of n-grams
that ranks add up, as BLEU of all sentences is no mean over sentences.
"""

import math
import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

Tally = dict[str, float]
"""Sums over some held-out samples by name; the tallies of disjoint samples may be added."""
CLASSES = ("right1", "right5", "samples")
TOKENS = ("nats", "tokens", "words")
ANSWERS = ("exact_sum", "f1_sum", "questions")
"""What tells of classes, of next tokens, and of answers to questions."""


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
log-likelihood in nats; BLEU is in [0, 100], from counts of n-grams.
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
        found["bleu"] = bleu_of(tally)
    return found


def better(metric: str, value: float, than: float) -> bool:
    """Return whether `value` is at least as good as `than` in `metric`."""
    return value >= than if QUALITY[metric].higher_is_better else value <= than


# ---- answers to questions -------------------------------------------------------------------------------------------


_ARTICLES = re.compile(r"\b(a|an|the)\b", re.UNICODE)
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised(text: str) -> str:
    """Return `text` in lower case without ASCII punctuation, articles and superfluous blanks (Rajpurkar et al. 2016).

    Punctuation goes before articles, so that "the," is an article and "a-b" is the word "ab".
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, truths: Sequence[str]) -> float:
    """Return 1.0 if `answer` is one of `truths` after normalisation, else 0.0."""
    return float(any(normalised(answer) == normalised(truth) for truth in truths))


def f1(answer: str, truths: Sequence[str]) -> float:
    """Return the best F1 over `truths` of the bags of words of `answer` and truth; where both are empty it is 0."""
    return max(_f1(normalised(answer).split(), normalised(truth).split()) for truth in truths)


def _f1(found: list[str], truth: list[str]) -> float:
    common = (Counter(found) & Counter(truth)).total()
    if not common:
        return 0.0
    precision, recall = common / len(found), common / len(truth)
    return 2 * precision * recall / (precision + recall)


def answers_tally(pairs: Iterable[tuple[str, Sequence[str]]]) -> Tally:
    """Return the sums of both metrics over (answer, truths) of each question."""
    tally = dict.fromkeys(ANSWERS, 0.0)
    for answer, truths in pairs:
        tally["exact_sum"] += exact_match(answer, truths)
        tally["f1_sum"] += f1(answer, truths)
        tally["questions"] += 1
    return tally


# ---- BLEU -----------------------------------------------------------------------------------------------------------


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
