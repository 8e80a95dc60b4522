"""The keys `data.*`: where data sets lie, whether they may be downloaded, and how many processes load samples."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from ssfx.config.overrides import Request
from ssfx.core.errors import ConfigError, unknown
from ssfx.core.own_code import is_own
from ssfx.core.paths import DATA_VARIABLE, DOWNLOAD_VARIABLE

DATA_KEYS = ("data.download", "data.root", "data.workers")


def without_data_keys(words: Iterable[str]) -> list[str]:
    """Return `words` without data.root and data.download, which hold from now on, and data.workers as `data_workers`.

    Where samples lie and how they came there changes nothing about a run, so it is no part of its identity but in the
    environment, which ranks inherit. What they hold is: the fingerprint of the data is in every row.
    """
    left = []
    for word in words:
        key, _, value = word.partition("=")
        if not key.startswith("data."):
            left.append(word)
        elif key not in DATA_KEYS:
            raise unknown("key", key, DATA_KEYS)
        elif key == "data.workers":
            left.append(f"data_workers={value}")
        elif key == "data.root":
            root = Path(value).expanduser().resolve()
            if not root.is_dir():
                raise ConfigError(f"data.root={value} is no folder; make it, and put the files of data sets there")
            os.environ[DATA_VARIABLE] = str(root)
        elif value not in ("true", "false"):
            raise ConfigError(f"data.download must be true or false, got {value!r}")
        else:
            os.environ[DOWNLOAD_VARIABLE] = "1" if value == "true" else ""
    return left


def with_own_data(request: Request) -> Request:
    """Return `request`; a model of the user's own without a workload or data set has synthetic samples."""
    own = any(is_own(str(name)) for name in request.get("model", ()))
    return {"dataset": ("synthetic",), **request} if own and not {"workload", "dataset"} & set(request) else request
