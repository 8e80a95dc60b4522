"""Where the package's own files are, in a checkout and in an installed wheel, and where results go."""

from __future__ import annotations

import os
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
_CHECKOUT = _PACKAGE.parent


def _own(in_checkout: str, in_wheel: str) -> Path:
    checkout = _CHECKOUT / in_checkout
    return checkout if checkout.is_dir() and (_CHECKOUT / "pyproject.toml").exists() else _PACKAGE / in_wheel


def conf_dir() -> Path:
    """Directory of the Hydra configuration."""
    return _own("conf", "_conf")


def experiments_dir() -> Path:
    """Directory of the figure and table scripts, one folder a paper."""
    return _own("experiments", "_experiments")


def reference_dir() -> Path:
    """Directory of the committed reference rows."""
    return _own("results/reference", "_reference")


def data_dir() -> Path:
    """Directory of shipped profiles, cost tables and claims."""
    return _PACKAGE / "data"


def results_dir() -> Path:
    """Directory that runs write to: $SSFX_RESULTS if it is set and not empty, else ./results."""
    return Path(os.environ.get("SSFX_RESULTS") or "results").resolve()


def cache_dir() -> Path:
    """Directory of what can be made again at any time: $XDG_CACHE_HOME/ssfx if that is set, else ~/.cache/ssfx."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "ssfx").expanduser()


DATA_VARIABLE = "SSFX_DATA"
DOWNLOAD_VARIABLE = "SSFX_DOWNLOAD"


def data_root() -> Path | None:
    """Directory of the user's data sets: $SSFX_DATA, which data.root=DIR sets; None when nobody named one."""
    named = os.environ.get(DATA_VARIABLE)
    return Path(named).expanduser().resolve() if named else None
