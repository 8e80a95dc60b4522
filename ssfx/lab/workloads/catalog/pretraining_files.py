"""Text for BERT's pre-training: pairs of passages of which some tokens are hidden."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from ssfx.core.errors import RunError
from ssfx.core.lazy import numpy as np
from ssfx.core.lazy import torch
from ssfx.core.spec import Bounded
from ssfx.lab.workloads.base import datasets
from ssfx.lab.workloads.on_disk import tokens as t
from ssfx.lab.workloads.on_disk.prepared import TokenizedFiles, lines

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from ssfx.lab.workloads.on_disk.loader import Samples
    from ssfx.lab.workloads.on_disk.prepared import Arrays

VOCABULARY = 30522


@dataclass(frozen=True)
class PretrainingOptions(Bounded):
    """Tokens per sample, ACP-SGD's; `tokenizer` and `vocabulary` as those of squad."""

    seq_len: Annotated[int, 8] = 64
    tokenizer: str = "tokenizer"
    vocabulary: Annotated[int, 300] = 8192


@datasets.register(PretrainingOptions())
class Pretraining(TokenizedFiles):
    """Passages of a text in pairs; in half of them the second one is from elsewhere (Devlin et al. 2019, 3.1).

    Of the tokens 15 % are to be found: eight in ten of these are [MASK], one is another token, one is left as it is. A
    passage is a run of tokens, not of sentences. Nothing is held out.
    """

    name = "pretraining"
    summary = "pairs of passages for BERT from text or parquet files in DIR/pretraining and its tokenizer/"
    source = "Devlin et al. 2019"
    inputs = "tokens of two sentences, some masked"
    held_out = False
    folder = "pretraining"
    files = (("*.txt", "*.parquet", "wiki.train.*"),)
    hint = "; dataset.tokenizer=bpe trains a tokenizer here"

    def _make(self) -> Arrays:
        tokenizer = self.tokenizer_for(lines(self.paths(0)), VOCABULARY)
        marks = [t.special(tokenizer, one, self.name) for one in ("[CLS]", "[SEP]", "[MASK]")]
        pieces = [np.array(one.ids, np.int32) for one in t.encoded(tokenizer, lines(self.paths(0)))]
        size = tokenizer.get_vocab_size(with_added_tokens=True)
        return {"text": np.concatenate(pieces), "marks": np.array([*marks, size], np.int32)}

    def samples(self, train: bool) -> Samples:
        """Return tokens, mask and segments [3, seq_len], and targets [1 + seq_len]; see BertPretraining."""
        found = _Passages(self._arrays["text"], self._arrays["marks"].tolist(), self.options.seq_len)
        if not len(found):
            raise RunError(f"the text of {self.name} is too short for one sample of {self.options.seq_len} tokens")
        return found

    def tally(self, model: nn.Module, rank: int, world_size: int) -> dict[str, float]:
        """Refuse: nothing is held out."""
        raise RunError(f"dataset={self.name} has no held-out part")


class _Passages:
    """Sample i: passages 2 i and 2 i + 1, or passage 2 i and one from anywhere."""

    def __init__(self, text: NDArray[Any], marks: list[int], seq_len: int) -> None:
        self._text = text
        self._cls, self._sep, self._mask, self._vocabulary = marks
        self._first = (seq_len - 3) // 2
        self._second = seq_len - 3 - self._first

    def __len__(self) -> int:
        return len(self._text) // (self._first + self._second)

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        start = number * (self._first + self._second)
        elsewhere = bool(torch.rand(()) < 0.5)
        second = int(torch.randint(len(self._text) - self._second + 1, ())) if elsewhere else start + self._first
        one, two = self._text[start : start + self._first], self._text[second : second + self._second]
        text = np.concatenate(([self._cls], one, [self._sep], two, [self._sep])).astype(np.int64)
        tokens = torch.from_numpy(text)
        segments = torch.zeros_like(tokens)
        segments[self._first + 2 :] = 1
        chosen, how = torch.rand(len(tokens)) < 0.15, torch.rand(len(tokens))
        chosen[1 + int(torch.randint(self._first, ()))] = True  # at least one, or the loss would have no value
        chosen &= (tokens != self._cls) & (tokens != self._sep)
        other = torch.randint(self._vocabulary, (len(tokens),))
        found = torch.where(how < 0.8, self._mask, torch.where(how < 0.9, other, tokens))
        hidden, words = torch.where(chosen, found, tokens), torch.where(chosen, tokens, -100)
        return torch.stack((hidden, torch.ones_like(tokens), segments)), torch.cat((torch.tensor([elsewhere]), words))
