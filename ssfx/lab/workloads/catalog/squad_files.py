"""SQuAD v1.1: questions about paragraphs of Wikipedia, in the tokens of BERT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ssfx.core.errors import RunError
from ssfx.core.lazy import numpy as np
from ssfx.core.lazy import torch
from ssfx.core.spec import Bounded
from ssfx.lab.workloads.base import datasets
from ssfx.lab.workloads.metrics.tally import answers_tally
from ssfx.lab.workloads.on_disk import tokens as t
from ssfx.lab.workloads.on_disk.base import fetch_tables, fetch_tokenizer
from ssfx.lab.workloads.on_disk.prepared import TokenizedFiles, rows

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from ssfx.lab.workloads.on_disk.loader import Samples
    from ssfx.lab.workloads.on_disk.prepared import Arrays

VOCABULARY = 30522
EVALUATION_BATCH = 16
QUESTION_TOKENS = 64
LONGEST_ANSWER = 30
"""Tokens; a span that is longer is not taken for an answer (Devlin et al. 2019)."""


@dataclass(frozen=True)
class SquadOptions(Bounded):
    """Tokens per sample, question included, and by how many tokens windows of a longer context are apart.

    `tokenizer`: a folder, below that of the data set or absolute, or bpe to train one here, with at most `vocabulary`
    tokens.
    """

    seq_len: Annotated[int, 8] = 384
    stride: Annotated[int, 1] = 128
    tokenizer: str = "tokenizer"
    vocabulary: Annotated[int, 300] = 8192


@dataclass(frozen=True)
class Question:
    """A question, its paragraph, and every answer that people gave, as (text, first character)."""

    text: str
    context: str
    answers: tuple[tuple[str, int], ...]


@datasets.register(SquadOptions())
class Squad(TokenizedFiles):
    """Windows of a paragraph after its question, as BERT's own script cuts them; the answer is a span, or the first
    token where it does not lie in the window.
    """

    name = "squad"
    summary = "SQuAD v1.1 from the tables of the hub in DIR/squad and its tokenizer/; f1, exact_match"
    source = "Rajpurkar et al. 2016; sequences of Devlin et al. 2019"
    inputs = "tokens of a question and a context, with the answer's span"
    folder = "squad"
    files = (("train*.parquet",), ("validation*.parquet",))
    hint = "; dataset.tokenizer=bpe trains a tokenizer here, data.download=true fetches all"

    def _make(self) -> Arrays:
        parts = {part: read_questions(self.paths(number)) for number, part in enumerate(("train", "dev"))}
        tokenizer = self.tokenizer_for((text for one in parts["train"] for text in (one.text, one.context)), VOCABULARY)
        found = {part: _windows_of(questions, tokenizer, self.options, self.name) for part, questions in parts.items()}
        return {f"{part}_{name}": array for part, arrays in found.items() for name, array in arrays.items()}

    def samples(self, train: bool) -> Samples:
        """Return tokens, mask and segments [3, seq_len], and the answer's first and last position [2], all int64."""
        from ssfx.lab.workloads.on_disk.loader import Made

        part = "train" if train else "dev"
        found = self._arrays
        return Made(len(found[f"{part}_inputs"]), partial(_window, found[f"{part}_inputs"], found[f"{part}_spans"]))

    def tally(self, model: nn.Module, rank: int, world_size: int) -> dict[str, float]:
        """Return the sums of exact match and F1 over every world_size-th held-out question."""
        questions = read_questions(self.paths(1))
        share = range(rank, len(questions), world_size)
        best = self._answers(model, set(share))
        return answers_tally(
            (_cut(questions[number].context, best.get(number)), [text for text, _ in questions[number].answers])
            for number in share
        )

    def _answers(self, model: nn.Module, wanted: set[int]) -> dict[int, tuple[int, int]]:
        """Return the characters of the best span of each wanted question, over all windows of its paragraph."""
        from ssfx.lab.workloads.objective import evaluating, logits

        samples, of = self.samples(train=False), self._arrays["dev_question"]
        offsets = self._arrays["dev_offsets"]
        chosen = [number for number, question in enumerate(of.tolist()) if question in wanted]
        best: dict[int, tuple[float, tuple[int, int]]] = {}
        with evaluating(model) as device:
            for start in range(0, len(chosen), EVALUATION_BATCH):
                block = chosen[start : start + EVALUATION_BATCH]
                inputs = torch.stack([samples[number][0] for number in block]).to(device)
                for number, scores in zip(block, logits(model, inputs).float().cpu(), strict=True):
                    score, first, last = _best_span(scores, torch.from_numpy(offsets[number, :, 1] > 0))
                    span = int(offsets[number, first, 0]), int(offsets[number, last, 1])
                    question = int(of[number])
                    best[question] = max(best.get(question, (score, span)), (score, span))
        return {question: span for question, (_, span) in best.items()}

    def download(self) -> None:
        """Fetch the tables, and the tokenizer of bert-base-uncased."""
        fetch_tables("rajpurkar/squad", None, self.folder)
        fetch_tokenizer("google-bert/bert-base-uncased", self.folder, self.options.tokenizer)


def read_questions(paths: Sequence[Path]) -> list[Question]:
    """Return the questions of tables as the hub has them, in their order; RunError for tables of something else."""
    try:
        return [
            Question(
                row["question"],
                row["context"],
                tuple(zip(row["answers"]["text"], row["answers"]["answer_start"], strict=True)),
            )
            for row in rows(paths)
        ]
    except (KeyError, TypeError) as error:
        raise RunError(f"{paths[0]} is no table of SQuAD v1.1: {type(error).__name__} {error}") from None


def _window(inputs: NDArray[Any], spans: NDArray[Any], number: int) -> tuple[Tensor, Tensor]:
    one, span = (torch.from_numpy(array[number].astype(np.int64)) for array in (inputs, spans))
    return one, span


def _windows_of(questions: list[Question], tokenizer: Any, options: SquadOptions, where: str) -> Arrays:
    """Return inputs [W, 3, T], spans [W, 2], the question of each window [W], and characters of tokens [W, T, 2].

    A window is [CLS] question [SEP] context [SEP], padded to seq_len. The characters are those of the context, 0 and 0
    for other tokens.
    """
    pad, begin, end = (t.special(tokenizer, one, where) for one in ("[PAD]", "[CLS]", "[SEP]"))
    asked = t.encoded(tokenizer, (one.text for one in questions))
    contexts = t.encoded(tokenizer, (one.context for one in questions))
    inputs, spans, of, offsets = [], [], [], []
    for number, (question, ask, context) in enumerate(zip(questions, asked, contexts, strict=True)):
        head = [begin, *ask.ids[: min(QUESTION_TOKENS, options.seq_len // 2)], end]
        room = options.seq_len - len(head) - 1
        answer = question.answers[0] if question.answers else ("", 0)
        stride = min(options.stride, room)  # every word is in a window
        for start in range(0, max(1, len(context.ids) - room + stride), stride):
            ids, places = context.ids[start : start + room], context.offsets[start : start + room]
            padding = [0] * (room - len(ids))
            inputs.append(
                [
                    [*head, *ids, end, *[pad] * len(padding)],
                    [1] * (options.seq_len - len(padding)) + padding,
                    [0] * len(head) + [1] * (len(ids) + 1) + padding,
                ]
            )
            spans.append(_span(answer, places, len(head)))
            of.append(number)
            offsets.append([(0, 0)] * len(head) + places + [(0, 0)] * (1 + len(padding)))
            if start + room >= len(context.ids):
                break
    if not inputs:
        raise RunError(f"{options} finds no question in the files")
    return {
        "inputs": np.array(inputs, np.int32),
        "spans": np.array(spans, np.int32),
        "question": np.array(of, np.int32),
        "offsets": np.array(offsets, np.int32),
    }


def _span(answer: tuple[str, int], places: list[tuple[int, int]], before: int) -> tuple[int, int]:
    """Return the first and last token of the answer in a window; (0, 0) when the window does not hold all of it."""
    text, first = answer
    last = first + len(text)
    inside = [i for i, (start, end) in enumerate(places) if start < last and end > first]
    if not text or not inside or places[inside[0]][0] > first or places[inside[-1]][1] < last:
        return 0, 0
    return before + inside[0], before + inside[-1]


def _best_span(scores: Tensor, in_context: Tensor) -> tuple[float, int, int]:
    """Return score, first and last token of the best span of the context: not reversed and not too long."""
    first, last = scores.masked_fill(~in_context, -1e9)
    both = first[:, None] + last[None]
    allowed = torch.ones_like(both, dtype=torch.bool).triu().tril(LONGEST_ANSWER - 1)
    best = int(both.masked_fill(~allowed, -4e9).argmax())
    return float(both.flatten()[best]), best // len(first), best % len(first)


def _cut(context: str, span: tuple[int, int] | None) -> str:
    return context[span[0] : span[1]] if span else ""
