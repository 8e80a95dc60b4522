"""WMT16, German to English, in the tokens of one byte-pair vocabulary for both languages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Annotated, Any

from ssfx.core.errors import RunError
from ssfx.core.lazy import numpy as np
from ssfx.core.lazy import torch
from ssfx.core.spec import Bounded
from ssfx.lab.workloads.base import datasets
from ssfx.lab.workloads.on_disk import tokens as t
from ssfx.lab.workloads.on_disk.base import fetch_tables
from ssfx.lab.workloads.on_disk.prepared import TokenizedFiles, rows

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from ssfx.lab.workloads.metrics.tally import Tally
    from ssfx.lab.workloads.on_disk.loader import Samples
    from ssfx.lab.workloads.on_disk.prepared import Arrays

VOCABULARY = 32317
PARTS = ("train", "validation")
PADDING, BEGIN, END = 0, 1, 2
PADDED = -100
"""The target where nothing is to be found."""
OWN = 3
"""Numbers that are no token of the tokenizer, whose own come after them."""


@dataclass(frozen=True)
class Wmt16Options(Bounded):
    """Tokens of the longest sentence; longer pairs are left out, as GNMT's script does.

    `tokenizer`: a folder, below that of the data set or absolute, or bpe to train one here, with at most `vocabulary`
    tokens.
    """

    seq_len: Annotated[int, 2] = 50
    tokenizer: str = "tokenizer"
    vocabulary: Annotated[int, f"[300, {VOCABULARY - OWN}]"] = 32000


@datasets.register(Wmt16Options())
class Wmt16(TokenizedFiles):
    """Pairs of sentences: tables with a column "translation" of {"de", "en"}, as the hub has them."""

    name = "wmt16"
    summary = "WMT16 German to English from DIR/wmt16 and its tokenizer/; perplexity, bleu"
    source = "Bojar et al. 2016"
    inputs = "tokens of a sentence and its translation"
    folder = "wmt16"
    files = tuple((f"{part}*.parquet",) for part in PARTS)
    hint = "; dataset.tokenizer=bpe trains a tokenizer here, data.download=true fetches the sentences"

    def _make(self) -> Arrays:
        texts = (text for pair in self._pairs("train") for text in pair)
        tokenizer = self.tokenizer_for(texts, VOCABULARY - OWN)
        (train, _), (validation, kept) = (self._padded(tokenizer, part) for part in PARTS)
        translations = [pair[1] for number, pair in enumerate(self._pairs("validation")) if number in kept]
        return {
            "train": train,
            "validation": validation,
            "tokenizer": _bytes(tokenizer.to_str()),
            "translations": _bytes(json.dumps(translations)),
        }

    def _padded(self, tokenizer: Any, part: str) -> tuple[NDArray[Any], set[int]]:
        """Return the pairs that are short enough, each sentence with an end, padded: [N, 2, seq_len], and which."""
        length, found, kept = self.options.seq_len, [], set()
        texts = t.encoded(tokenizer, (text for pair in self._pairs(part) for text in pair))
        for number, source in enumerate(texts):
            both = [[OWN + token for token in one.ids] + [END] for one in (source, next(texts))]
            if all(len(one) <= length for one in both):
                found.append([one + [PADDING] * (length - len(one)) for one in both])
                kept.add(number)
        if not found:
            raise RunError(f"the {part} part of {self.name} has no pair of at most {length} tokens")
        return np.array(found, np.int32), kept

    def _pairs(self, part: str) -> Iterator[tuple[str, str]]:
        paths = self.paths(PARTS.index(part))
        for row in rows(paths):
            pair = row.get("translation", row)
            if not {"de", "en"} <= set(pair):
                raise RunError(f"{paths[0]} has no sentences de and en; it has {', '.join(pair)}")
            if pair["de"] and pair["en"]:
                yield pair["de"], pair["en"]

    def samples(self, train: bool) -> Samples:
        """Return both sentences [2, seq_len], the second one later, and what comes next [seq_len], -100 for padding."""
        from ssfx.lab.workloads.on_disk.loader import Made

        pairs = self._arrays[PARTS[not train]]
        return Made(len(pairs), partial(_pair, pairs))

    def tally(self, model: nn.Module, rank: int, world_size: int) -> Tally:
        """Return the sums of the perplexity per token and of BLEU over every world_size-th pair.

        The perplexity is that of the translation in the file; BLEU is that of the network's own, written greedily.
        """
        from ssfx.lab.workloads.metrics.networks import greedy, tokens_tally
        from ssfx.lab.workloads.metrics.tally import bleu_tally
        from ssfx.lab.workloads.objective import evaluating, logits

        total: Tally = {"nats": 0.0, "tokens": 0.0}
        written: list[str] = []
        with evaluating(model) as device:
            for batch in self.held_out_batches(rank, world_size):
                inputs, targets = (part.to(device) for part in batch)
                counted = tokens_tally(logits(model, inputs), targets, 0.0)
                total["nats"] += counted["nats"]
                total["tokens"] += float((targets != PADDED).sum())
                written += self._texts(greedy(model, inputs[:, 0], begin=BEGIN, end=END, padding=PADDING))
        return total | bleu_tally(written, json.loads(bytes(self._arrays["translations"]))[rank::world_size])

    def _texts(self, tokens: Tensor) -> list[str]:
        """Return the sentences of tokens [N, T], each up to its end."""
        rows = (row[: row.index(END)] if END in row else row for row in tokens.tolist())
        return list(self._tokenizer.decode_batch([[number - OWN for number in row if number >= OWN] for row in rows]))

    @cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        return Tokenizer.from_str(bytes(self._arrays["tokenizer"]).decode())

    def download(self) -> None:
        """Fetch the sentences; a tokenizer for them is trained here."""
        fetch_tables("wmt/wmt16", "de-en", self.folder)


def _pair(pairs: NDArray[Any], number: int) -> tuple[Tensor, Tensor]:
    """Return the source, the translation after a token that begins it, and the translation to be found."""
    source, target = torch.from_numpy(pairs[number].astype(np.int64))
    given = torch.cat((torch.tensor([BEGIN]), target[:-1]))
    return torch.stack((source, given)), torch.where(target == PADDING, PADDED, target)


def _bytes(text: str) -> NDArray[Any]:
    return np.frombuffer(text.encode(), np.uint8)
