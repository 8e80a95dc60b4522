"""What data sets in files have in common that are brought into arrays once, also in tokens."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ssfx.core.errors import RunError
from ssfx.lab.workloads.on_disk import tokens as t
from ssfx.lab.workloads.on_disk.base import FileDataset
from ssfx.lab.workloads.on_disk.prepared import prepared

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ssfx.lab.workloads.on_disk.prepared import Arrays


class PreparedFiles(FileDataset):
    """Files that are read once for every content and options; later calls map the arrays that were made of them."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.seq_len = options.seq_len

    @cached_property
    def _arrays(self) -> dict[str, NDArray[Any]]:
        return prepared(f"{self.name}-{self.fingerprint()}", self._make)

    @abstractmethod
    def _make(self) -> Arrays:
        """Return the arrays that samples are cut from."""


class TokenizedFiles(PreparedFiles):
    """The same in tokens; `options.tokenizer` is a folder, or bpe to train one of at most `options.vocabulary`."""

    @property
    def wanted(self) -> tuple[tuple[str, ...], ...]:
        """The files, and a tokenizer unless one is trained."""
        return (*self.files, *t.wanted(self.options.tokenizer))

    def tokenizer_for(self, texts: Iterable[str], limit: int) -> Any:
        """Return the tokenizer in the files, or one trained on `texts`, of at most `limit` tokens."""
        if self.options.tokenizer == t.TRAINED:
            return t.train_tokenizer(texts, min(self.options.vocabulary, limit))
        return t.load_tokenizer(self.paths(len(self.files))[0], limit)


# ---- tables ---------------------------------------------------------------------------------------------------------


_KINDS = {".parquet": "parquet", ".json": "json", ".csv": "csv"}


def rows(paths: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """Yield every row of files of one kind, by their ending; a line of any other file is a row {"text": line}.

    RunError for what cannot be read.
    """
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        os.environ.setdefault(name, "1")
    import datasets

    datasets.disable_progress_bars()
    kind = _KINDS.get(paths[0].suffix, "text")
    try:
        yield from datasets.load_dataset(kind, data_files=[str(path) for path in paths], split="train", streaming=True)
    except (OSError, ValueError, KeyError, datasets.exceptions.DatasetsError) as error:
        raise RunError(f"{paths[0]} cannot be read as {kind}: {error}") from None


def lines(paths: Sequence[Path]) -> Iterator[str]:
    """Yield the column "text" of tables, or the lines of texts, without the line break at their end."""
    for row in rows(paths):
        if "text" not in row:
            raise RunError(f"{paths[0]} has no column text; it has {', '.join(row)}")
        yield row["text"].removesuffix("\n")
