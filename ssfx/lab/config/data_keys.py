"""The keys `data.*` and `model.path`: where the user's files lie, whether data may be downloaded, and who loads it."""

import os
from collections.abc import Iterable
from pathlib import Path

from ssfx.config.overrides import Request
from ssfx.core.errors import ConfigError, unknown
from ssfx.core.paths import DATA_VARIABLE, DOWNLOAD_VARIABLE, WEIGHTS_VARIABLE
from ssfx.core.user_code import is_own
from ssfx.lab.workloads.samples import sample_of

DATA_KEYS = ("data.download", "data.root", "data.workers")


def without_data_keys(words: Iterable[str]) -> list[str]:
    """Return `words` without data.root, data.download and model.path, which hold from now on; data.workers is renamed.

    Where samples lie and how they came there changes nothing about a run, so it is no part of its identity but in the
    environment, which ranks inherit. What they hold is: the fingerprint of the data is in every row, that of the
    weights in every case.
    """
    left = []
    os.environ.pop(WEIGHTS_VARIABLE, None)  # unlike data, weights of an earlier command are not those of this one
    for word in words:
        key, _, value = word.partition("=")
        if key == "model.path":
            os.environ[WEIGHTS_VARIABLE] = str(Path(value).expanduser().resolve())
        elif not key.startswith("data."):
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
    own = [str(name) for name in request.get("model", ()) if is_own(str(name))]
    if not own or {"workload", "dataset"} & set(request):
        return request
    for name in own:
        sample_of(name)  # before anything is started
    return {"dataset": ("synthetic",), **request}
