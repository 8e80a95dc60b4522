"""WikiText-2 and WikiText-103, in words or in the tokens of a tokenizer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from ssfx.core.errors import RunError
from ssfx.core.lazy import numpy as np
from ssfx.core.lazy import torch
from ssfx.core.spec import Bounded
from ssfx.lab.workloads.base import datasets
from ssfx.lab.workloads.metrics.tally import TOKENS
from ssfx.lab.workloads.on_disk import tokens as t
from ssfx.lab.workloads.on_disk.base import fetch_tables, fetch_tokenizer
from ssfx.lab.workloads.on_disk.prepared import PreparedFiles, TokenizedFiles, lines

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from ssfx.lab.workloads.metrics.tally import Tally
    from ssfx.lab.workloads.on_disk.loader import Samples
    from ssfx.lab.workloads.on_disk.prepared import Arrays

PARTS = ("train", "valid")
_UNKNOWN, _END = "<unk>", "<eos>"


def text_names(part: str) -> tuple[str, ...]:
    """Return the names that one part of WikiText has in its archives and on the Hugging Face hub."""
    parquet = {"valid": "validation"}.get(part, part)
    return (f"wiki.{part}.tokens", f"wiki.{part}.raw", f"{parquet}*.parquet")


@dataclass(frozen=True)
class WordOptions(Bounded):
    """Words per sample."""

    seq_len: Annotated[int, 1] = 70


@dataclass(frozen=True)
class TokenOptions(Bounded):
    """Tokens per sample; `tokenizer`: a folder, below that of the data set or absolute, or bpe to train one here.

    `vocabulary`: at most so many tokens has the one that is trained.
    """

    seq_len: Annotated[int, 1] = 1024
    tokenizer: str = "tokenizer"
    vocabulary: Annotated[int, 300] = 8192


class _Text(PreparedFiles):
    """A text cut into samples of equal length, each with the tokens that follow; the perplexities of the valid part."""

    files = tuple(text_names(part) for part in PARTS)
    sums = TOKENS
    evaluation_batch = 8
    limit: ClassVar[int]
    """How many different tokens the models know that read it."""

    def samples(self, train: bool) -> Samples:
        """Return windows of tokens [seq_len] and the tokens that follow them [seq_len], both int64."""
        from ssfx.lab.workloads.on_disk.loader import Made

        part = PARTS[not train]
        text = self._arrays[part]
        if len(text) <= self.seq_len:
            raise RunError(f"the {part} part of {self.name} has {len(text)} tokens, less than one sample")
        return Made((len(text) - 1) // self.seq_len, partial(_window, text, self.seq_len))

    def tally(self, model: nn.Module, rank: int, world_size: int) -> Tally:
        """Return the sums of the perplexities over every world_size-th window, each without context before it."""
        samples = len(self.samples(train=False))
        words = float(self._arrays["words"]) / samples * len(range(rank, samples, world_size))
        return super().tally(model, rank, world_size) | {"words": words}

    def training_size(self) -> int:
        """Return the words, or tokens, of the training part."""
        return len(self._arrays["train"])

    def _lines(self, part: str) -> Iterator[str]:
        return lines(self.paths(PARTS.index(part)))


def _window(text: NDArray[Any], seq_len: int, number: int) -> tuple[Tensor, Tensor]:
    """Return tokens number * seq_len to (number + 1) * seq_len, and the same one later."""
    start = number * seq_len
    window = torch.from_numpy(text[start : start + seq_len + 1].astype(np.int64))
    return window[:-1], window[1:]


class _Words(_Text):
    """Words between blanks, the most frequent of the training part, and one token at the end of each line."""

    lower: ClassVar[bool] = False
    most_valid: ClassVar[int | None] = None
    """Words of the valid part that are kept; None: all."""
    hint = "; or add data.download=true"

    def _make(self) -> Arrays:
        texts = {part: [word for line in self._lines(part) for word in self._split(line)] for part in PARTS}
        frequent = [word for word, _ in Counter(texts["train"]).most_common() if word != _UNKNOWN]
        known = {word: number for number, word in enumerate([_UNKNOWN, *frequent[: self.limit - 1]])}
        texts["valid"] = texts["valid"][: self.most_valid]
        arrays = {part: np.array([known.get(word, 0) for word in words], np.int32) for part, words in texts.items()}
        return {**arrays, "words": np.array(len(texts["valid"]))}

    def download(self) -> None:
        """Fetch the text."""
        fetch_tables("Salesforce/wikitext", "wikitext-2-v1", self.folder)

    def _split(self, line: str) -> list[str]:
        return [*(line.lower() if self.lower else line).split(), _END]


class _Tokenized(TokenizedFiles, _Text):
    """All lines in one row, in the tokens of a tokenizer."""

    model: ClassVar[str]
    hint = "; dataset.tokenizer=bpe trains a tokenizer here, data.download=true fetches text and tokenizer"

    def _make(self) -> Arrays:
        tokenizer = self.tokenizer_for(self._with_breaks("train"), self.limit)
        arrays = {part: _joined(tokenizer, self._with_breaks(part)) for part in PARTS}
        return {**arrays, "words": np.array(sum(len(line.split()) for line in self._lines("valid")))}

    def download(self) -> None:
        """Fetch the text, and the tokenizer of the models that read it."""
        fetch_tables("Salesforce/wikitext", "wikitext-103-raw-v1", self.folder)
        fetch_tokenizer(self.model, self.folder, self.options.tokenizer)

    def _with_breaks(self, part: str) -> Iterator[str]:
        return (line + "\n" for line in self._lines(part))


def _joined(tokenizer: Any, texts: Iterator[str]) -> NDArray[Any]:
    pieces = [np.array(one.ids, np.int32) for one in t.encoded(tokenizer, texts)]
    return np.concatenate(pieces) if pieces else np.empty(0, np.int32)


@datasets.register(WordOptions())
class WikiText2(_Words):
    """WikiText-2 in its 33,278 words."""

    name = "wikitext2"
    summary = "WikiText-2 in words from DIR/wikitext-2; perplexity per word"
    source = "Merity et al. 2016"
    inputs = "WikiText-2 words"
    folder = "wikitext-2"
    limit = 33278
    published = 2088628


@datasets.register(WordOptions(seq_len=16))
class WikiText2Small(WikiText2):
    """WikiText-2 in its 4,096 most frequent words; quality is measured on the first 8,192 held-out words."""

    name = "wikitext2_small"
    summary = "WikiText-2 in its 4,096 most frequent words from DIR/wikitext-2; perplexity per word"
    inputs = "the 4,096 most frequent words of WikiText-2"
    limit = 4096
    most_valid = 8192


@datasets.register(WordOptions(seq_len=30))
class WikiText2PowerSgd(WikiText2):
    """WikiText-2 in lower case, in the 28,869 most frequent words, as PowerSGD's language task has it."""

    name = "wikitext2_powersgd"
    summary = "WikiText-2 in lower-case words from DIR/wikitext-2; perplexity per word"
    inputs = "WikiText-2 words of PowerSGD's vocabulary"
    limit = 28869
    lower = True


@datasets.register(TokenOptions())
class WikiText103(_Tokenized):
    """WikiText-103 in the tokens of GPT-2, or of a tokenizer of at most as many."""

    name = "wikitext103"
    summary = "WikiText-103 in GPT-2's tokens from DIR/wikitext-103 and its tokenizer/; perplexities"
    source = "Merity et al. 2016"
    inputs = "GPT-2 tokens"
    folder = "wikitext-103"
    limit = 50257
    model = "openai-community/gpt2"


@datasets.register(TokenOptions(tokenizer="tokenizer_bloom"))
class WikiText103Bloom(_Tokenized):
    """WikiText-103 in the tokens of BLOOM, or of a tokenizer of at most as many."""

    name = "wikitext103_bloom"
    summary = "WikiText-103 in BLOOM's tokens from DIR/wikitext-103 and its tokenizer_bloom/; perplexities"
    source = "Merity et al. 2016"
    inputs = "BLOOM tokens"
    folder = "wikitext-103"
    limit = 250880
    model = "bigscience/bloom-3b"
