"""Arrays that take a while to make from the user's files: made once, by one process, and mapped into memory by all.

Data sets in files that are brought into arrays once, also in tokens, share what is here.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ssfx.core.errors import RunError
from ssfx.core.files import DAMAGED, read_json, set_aside, write_json
from ssfx.core.lazy import numpy as np
from ssfx.core.paths import cache_dir
from ssfx.lab.workloads.on_disk import tokens as t
from ssfx.lab.workloads.on_disk.base import FileDataset

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[np.generic]]


VERSION = 3
"""Goes into every key: counted up when samples are made in another way."""
_DIGESTS = "digests.json"


def prepared(key: str, make: Callable[[], Arrays]) -> dict[str, NDArray[np.generic]]:
    """Return what `make` made for `key`, now or earlier, mapped into memory and read-only.

    Ranks on machines that share the cache's file system wait for the first of them. What is no longer what was made is
    set aside and made again.
    """
    folder = cache_dir() / "data" / f"{key}-v{VERSION}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists() and not _as_made(folder):
            set_aside(folder)
        if not folder.exists():
            _write(folder, make())
    return {path.stem: np.load(path, mmap_mode="r") for path in sorted(folder.glob("*.npy"))}


def _as_made(folder: Path) -> bool:
    """Return whether the arrays in `folder` are those that were written; reading them all is soon done."""
    try:
        made = dict(read_json(folder / _DIGESTS))
        found = {path.name: _digest(path) for path in folder.glob("*.npy")}
    except (RunError, OSError, *DAMAGED):
        return False
    return found == made


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write(folder: Path, arrays: Arrays) -> None:
    temporary = folder.with_name(f"{folder.name}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    for name, array in arrays.items():
        np.save(temporary / f"{name}.npy", array)
    digests = {path.name: _digest(path) for path in temporary.glob("*.npy")}
    write_json(temporary / _DIGESTS, json.dumps(digests))
    temporary.rename(folder)


class PreparedFiles(FileDataset):
    """Files that are read once for every content and options; later calls map the arrays that were made of them."""

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


def rows(paths: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """Yield every row of parquet files; a line of any other files is a row {"text": line}.

    RunError for what cannot be read.
    """
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        os.environ.setdefault(name, "1")
    import datasets

    datasets.disable_progress_bars()
    kind = "parquet" if paths[0].suffix == ".parquet" else "text"
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
