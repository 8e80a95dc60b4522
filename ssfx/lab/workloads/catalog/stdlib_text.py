"""A text that every machine already has: the source code of Python's own standard library."""

from __future__ import annotations

import hashlib
import os
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ssfx.core.errors import RunError
from ssfx.core.lazy import numpy as np
from ssfx.core.lazy import torch
from ssfx.core.spec import Bounded
from ssfx.lab.workloads.base import datasets
from ssfx.lab.workloads.gathered import GatheredDataset
from ssfx.lab.workloads.metrics.tally import TOKENS

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import nn

    from ssfx.lab.workloads.metrics.tally import Tally
    from ssfx.lab.workloads.stream import Batch

# Installed packages are not the standard library, and some distributions leave its tests and tools out.
_LEFT_OUT = frozenset({"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "ensurepip"})


@dataclass(frozen=True)
class StdlibTextOptions(Bounded):
    """Bytes per sample, bytes of source that are read, and held-out bytes that `evaluate` scores."""

    seq_len: Annotated[int, 1] = 128
    max_bytes: Annotated[int, 2**16] = 4 * 2**20
    held_out_bytes: int = 2**16

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.held_out_bytes <= self.seq_len:
            raise ValueError("held_out_bytes must be above seq_len")


@datasets.register(StdlibTextOptions())
class StdlibText(GatheredDataset):
    """The .py files of the running Python as bytes, sorted by relative path, up to the file that passes `max_bytes`.

    A file is held out when the first byte of the SHA-256 of its content is below 26 (one tenth). Other Python versions
    give another text, and so another fingerprint.
    """

    name = "stdlib_text"
    summary = "source code of the Python standard library as bytes, a tenth of the files held out; perplexity"
    source = "the running Python's standard library (sysconfig)"
    inputs = "bytes"
    sums = TOKENS

    @cached_property
    def _split(self) -> tuple[bytes, bytes]:
        train: list[bytes] = []
        held_out: list[bytes] = []
        total = 0
        for content in _sources():
            (held_out if hashlib.sha256(content).digest()[0] < 26 else train).append(content)
            total += len(content) + 1
            if total >= self.options.max_bytes:
                break
        # Files end with a zero byte, which Python source must not contain.
        texts = b"".join(c + b"\0" for c in train), b"".join(c + b"\0" for c in held_out)
        if min(map(len, texts)) <= self.seq_len:
            raise RunError(
                f"the Python standard library has too little source here: {len(texts[0])} training and {len(texts[1])} "
                f"held-out bytes for samples of {self.seq_len}; use a Python installed with its .py files"
            )
        return texts[0], texts[1][: self.options.held_out_bytes]

    @cached_property
    def _tokens(self) -> list[torch.Tensor]:
        return [torch.frombuffer(bytearray(text), dtype=torch.uint8) for text in self._split]

    def fingerprint(self) -> str:
        """Return the hash of both parts of the text and of the sample length."""
        train, held_out = (hashlib.sha256(text).digest() for text in self._split)
        return hashlib.sha256(train + held_out + str(self.seq_len).encode()).hexdigest()[:16]

    def numbers(self, train: bool) -> NDArray[np.int64]:
        """Return the numbers of the windows of a part."""
        return np.arange((len(self._tokens[not train]) - 1) // self.seq_len)

    def gather(self, train: bool, numbers: NDArray[np.int64]) -> Batch:
        """Return bytes [B, seq_len] and the bytes that follow them [B, seq_len], both int64."""
        at = torch.from_numpy(numbers * self.seq_len)[:, None] + torch.arange(self.seq_len + 1)
        window = self._tokens[not train][at].long()
        return window[:, :-1], window[:, 1:]

    def score(self, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> Tally:
        """Return the sums of the perplexities of windows, each without context before it.

        A token is a byte. A word ends where a blank follows something else.
        """
        from ssfx.lab.workloads.metrics.networks import tokens_tally
        from ssfx.lab.workloads.objective import logits

        ends = _is_blank(targets) & ~_is_blank(inputs)
        return tokens_tally(logits(model, inputs), targets, float(ends.sum()))


def _is_blank(tokens: torch.Tensor) -> torch.Tensor:
    return (tokens <= ord(" ")) | (tokens == ord("\x7f"))


def _sources() -> Iterator[bytes]:
    root = Path(sysconfig.get_path("stdlib"))
    files: list[Path] = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in _LEFT_OUT]
        files += [Path(folder, name) for name in names if name.endswith(".py")]
    if not files:
        raise RunError(f"no .py files in {root}; data set stdlib_text needs a Python installed with its sources")
    return (_read(path) for path in sorted(files, key=lambda path: path.relative_to(root).as_posix()))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise RunError(f"data set stdlib_text cannot read {path}: {error.strerror}") from error
