"""Questions after a kind of thing, as "when" asks for a date: the answer is the words of that kind in a context."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated

from ssfx.core.lazy import numpy as np
from ssfx.core.lazy import torch
from ssfx.core.spec import Bounded
from ssfx.lab.workloads.base import datasets
from ssfx.lab.workloads.gathered import GatheredDataset
from ssfx.lab.workloads.metrics.tally import ANSWERS, answers_tally

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import nn

    from ssfx.lab.workloads.metrics.tally import Tally
    from ssfx.lab.workloads.stream import Batch

QUESTIONS = ("who was it that", "where does it stand", "when did it happen", "which colour was it")
"""One for every kind of thing; each of its words is a token of its own."""
WORDS_PER_KIND = 16
FILLERS = 32
LONGEST = 3
"""Words of the longest answer."""
_ASKED = 4  # words of a question
_BEFORE = _ASKED + 1  # tokens before the context: the question and a separator
_SLOT = LONGEST + 1  # words of the context that hold one thing, so that two of them never touch


@dataclass(frozen=True)
class GeneratedQuestionsOptions(Bounded):
    """Tokens per sample, question included, and questions generated for training and held out."""

    seq_len: int = 32
    train_samples: Annotated[int, 1] = 8192
    held_out_samples: Annotated[int, 1] = 512

    def __post_init__(self) -> None:
        super().__post_init__()
        least = _BEFORE + _SLOT * len(QUESTIONS)
        if self.seq_len < least:
            raise ValueError(f"seq_len must be at least {least}, got {self.seq_len}")


@datasets.register(GeneratedQuestionsOptions())
class GeneratedQuestions(GatheredDataset):
    """Contexts of filler words in which every kind of thing is named once, in one to three words of that kind.

    It has the form of SQuAD: one sequence holds question and context, the answer is a span of the context, and it is
    scored by exact match and F1 of its words. What must be learned is which words answer which question.
    """

    name = "generated_questions"
    summary = "generated questions after a kind of thing, whose answer is a span of a context; f1, exact_match"
    source = "generated with fixed seeds"
    inputs = "words of a question and a context, with the answer's span"
    sums = ANSWERS
    evaluation_batch = 128

    def _generated(self, seed: int, samples: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return tokens [samples, seq_len] and the answers' first and last positions [samples, 2]."""
        rng = np.random.default_rng(seed)
        kinds, rows = len(QUESTIONS), np.arange(samples)[:, None]
        tokens = rng.integers(_FIRST_FILLER, _FIRST_FILLER + FILLERS, (samples, self.seq_len))
        asked = rng.integers(0, kinds, samples)
        tokens[:, :_ASKED] = asked[:, None] * _ASKED + np.arange(_ASKED)
        tokens[:, _ASKED] = _SEPARATOR
        slots = (self.seq_len - _BEFORE) // _SLOT
        slot = rng.permuted(np.tile(np.arange(slots), (samples, 1)), axis=1)[:, :kinds]
        length = rng.integers(1, LONGEST + 1, (samples, kinds))
        first = _BEFORE + slot * _SLOT + rng.integers(0, LONGEST + 1 - length)
        last = first + length - 1
        for kind in range(kinds):
            words = rng.integers(0, WORDS_PER_KIND, (samples, LONGEST)) + _FIRST_WORD + kind * WORDS_PER_KIND
            at = first[:, kind, None] + np.arange(LONGEST)
            within = at <= last[:, kind, None]
            tokens[np.broadcast_to(rows, at.shape)[within], at[within]] = words[within]
        spans = np.stack((first, last), axis=-1)[rows[:, 0], asked]
        return torch.from_numpy(tokens), torch.from_numpy(spans)

    @cached_property
    def _train(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self._generated(1, self.options.train_samples)

    @cached_property
    def _held_out(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self._generated(2, self.options.held_out_samples)

    def fingerprint(self) -> str:
        """Return the hash of all questions, contexts and answers."""
        parts = (part.numpy().tobytes() for part in (*self._train, *self._held_out))
        return hashlib.sha256(b"".join(parts)).hexdigest()[:16]

    def numbers(self, train: bool) -> NDArray[np.int64]:
        """Return the numbers of the questions of a part."""
        return np.arange(self.options.train_samples if train else self.options.held_out_samples)

    def gather(self, train: bool, numbers: NDArray[np.int64]) -> Batch:
        """Return tokens [B, seq_len] and the answer's first and last position [B, 2], both int64."""
        tokens, spans = self._train if train else self._held_out
        return tokens[numbers], spans[numbers]

    def score(self, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> Tally:
        """Return the sums of f1 and exact_match of questions.

        The answer is the span of the best first position and the best last one that does not precede it.
        """
        from ssfx.lab.workloads.objective import logits

        found = logits(model, inputs).float().cpu()
        begins = found[:, 0].argmax(-1)
        before = torch.arange(self.seq_len)[None, :] < begins[:, None]
        ends = found[:, 1].masked_fill(before, float("-inf")).argmax(-1)
        return answers_tally(
            (_text(row[int(a) : int(b) + 1]), [_text(row[int(span[0]) : int(span[1]) + 1])])
            for row, a, b, span in zip(inputs.cpu(), begins, ends, targets.cpu(), strict=True)
        )


_SEPARATOR = _ASKED * len(QUESTIONS)
_FIRST_WORD = _SEPARATOR + 1
_FIRST_FILLER = _FIRST_WORD + len(QUESTIONS) * WORDS_PER_KIND
VOCABULARY = _FIRST_FILLER + FILLERS


def _text(tokens: torch.Tensor) -> str:
    """Return tokens as words, which their numbers are; the separator is none."""
    return " ".join(str(token) for token in tokens.tolist() if token != _SEPARATOR)
