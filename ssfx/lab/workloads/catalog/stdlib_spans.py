"""Questions about a text that every machine already has: where in its context does an excerpt stand?"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ssfx.core.lazy import numpy as np
from ssfx.core.lazy import torch
from ssfx.lab.workloads.base import datasets
from ssfx.lab.workloads.catalog.stdlib_text import StdlibText, StdlibTextOptions
from ssfx.lab.workloads.metrics.tally import added
from ssfx.lab.workloads.stream import SampleStream

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import nn

    from ssfx.lab.workloads.metrics.tally import Tally
    from ssfx.lab.workloads.stream import Batch

QUESTION_BYTES = 16
SEPARATOR = 256
"""Token between question and context; tokens below it are bytes."""
_BEFORE = QUESTION_BYTES + 1
_STRIDE = 7919  # prime, so that places are spread over the context and depend on the number of the sample alone
_EVALUATION_BATCH = 32


@dataclass(frozen=True)
class StdlibSpansOptions(StdlibTextOptions):
    """As those of stdlib_text; `seq_len` counts question, separator and context."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.seq_len <= _BEFORE + QUESTION_BYTES:
            raise ValueError(f"seq_len must be above {_BEFORE + QUESTION_BYTES}, got {self.seq_len}")


@datasets.register(StdlibSpansOptions())
class StdlibSpans(StdlibText):
    """Contexts cut from the text of stdlib_text, each after an excerpt of it; the answer is where the excerpt was cut.

    It has the form of SQuAD: one sequence holds question and context, the answer is a span of the context.
    """

    name = "stdlib_spans"
    summary = (
        "excerpts of the Python standard library to be found in their context, a tenth of the files held out; top1"
    )
    source = "the running Python's standard library (sysconfig)"
    inputs = "bytes of a question and a context, with the answer's span"

    def __init__(self, options: StdlibSpansOptions = StdlibSpansOptions()) -> None:
        super().__init__(options)
        self._context = options.seq_len - _BEFORE

    def fingerprint(self) -> str:
        """Return the hash of both parts of the text, of the sample length and of how questions are cut."""
        text = f"{super().fingerprint()} {QUESTION_BYTES} {_STRIDE}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def train_loader(
        self, rank: int, world_size: int, batch_size: int, seed: int, *, device: str = "cpu", workers: int = 0
    ) -> SampleStream:
        """Return batches of tokens [B, seq_len] and of the answer's first and last position [B, 2], both int64."""

        def gather(samples: NDArray[np.int64]) -> Batch:
            return self._questions(self._train, samples)

        return SampleStream(
            gather, num_samples=len(self._train) // self._context,
            rank=rank, world_size=world_size, batch_size=batch_size, seed=seed,
        )  # fmt: skip

    def tally(self, model: nn.Module, rank: int, world_size: int) -> Tally:
        """Return the sums of top1 over every world_size-th held-out question: first and last position both right."""
        from ssfx.lab.workloads.objective import evaluating, logits

        share = np.arange(len(self._held_out) // self._context)[rank::world_size]
        total: Tally = {"right1": 0.0, "samples": 0.0}
        with evaluating(model) as device:
            for start in range(0, len(share), _EVALUATION_BATCH):
                tokens, spans = self._questions(self._held_out, share[start : start + _EVALUATION_BATCH])
                right = (logits(model, tokens.to(device)).argmax(-1) == spans.to(device)).all(-1)
                total = added(total, {"right1": float(right.sum()), "samples": float(len(right))})
        return total

    def _questions(self, text: torch.Tensor, samples: NDArray[np.int64]) -> Batch:
        numbers = torch.from_numpy(samples)[:, None]
        contexts = text[numbers * self._context + torch.arange(self._context)].long()
        first = numbers * _STRIDE % (self._context - QUESTION_BYTES + 1)
        questions = contexts.gather(1, first + torch.arange(QUESTION_BYTES))
        tokens = torch.cat((questions, torch.full_like(first, SEPARATOR), contexts), dim=1)
        return tokens, _BEFORE + torch.cat((first, first + QUESTION_BYTES - 1), dim=1)
