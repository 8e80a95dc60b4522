"""Arrays that take a while to make from the user's files: made once, by one process, and mapped into memory by all."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ssfx.core.errors import RunError
from ssfx.core.files import DAMAGED, read_json, set_aside, write_json
from ssfx.core.lazy import numpy as np
from ssfx.core.paths import cache_dir

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[np.generic]]

VERSION = 3
"""Goes into every key: counted up when samples are made in another way."""
_DIGESTS = "digests.json"


def digest_of(paths: Iterable[Path], *more: object) -> str:
    """Return 16 hex digits of the content of files and of `more`; RunError for one that cannot be read."""
    found = hashlib.sha256(repr(more).encode())
    for path in paths:
        try:
            with path.open("rb") as file:
                found.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise RunError(f"{path} cannot be read: {error.strerror}") from None
    return found.hexdigest()[:16]


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
