"""Exact match and F1 of answers to questions, with the normalisation that SQuAD's official scorer defines."""

import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence

from ssfx.lab.workloads.metrics.tally import Tally

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
    tally = {"exact_sum": 0.0, "f1_sum": 0.0, "questions": 0.0}
    for answer, truths in pairs:
        tally["exact_sum"] += exact_match(answer, truths)
        tally["f1_sum"] += f1(answer, truths)
        tally["questions"] += 1
    return tally
