"""Where the package's own files are, in a checkout and in an installed wheel, and where results go."""

import os
from pathlib import Path

from ssfx.core.errors import ConfigError

_PACKAGE = Path(__file__).parents[1]
_CHECKOUT = _PACKAGE.parent


def checkout() -> Path | None:
    """Directory of the repository that this package is in; None where it was installed without one."""
    return _CHECKOUT if (_CHECKOUT / "pyproject.toml").exists() and (_CHECKOUT / "conf").is_dir() else None


def _own(in_checkout: str, in_wheel: str) -> Path:
    here = checkout()
    return here / in_checkout if here else _PACKAGE / in_wheel


def conf_dir() -> Path:
    """Directory of the Hydra configuration that comes with ssfx."""
    return _own("conf", "_conf")


def conf_dirs() -> tuple[Path, ...]:
    """Directories of the configuration: the user's own, which $SSFX_CONF lists as PATH does, then the shipped one.

    ConfigError for one that does not exist.
    """
    own = [Path(name).expanduser().resolve() for name in os.environ.get("SSFX_CONF", "").split(os.pathsep) if name]
    for folder in own:
        if not folder.is_dir():
            raise ConfigError(f"{folder} is no folder; --config-dir and SSFX_CONF name folders like conf/ of ssfx")
    return (*own, conf_dir())


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
WEIGHTS_VARIABLE = "SSFX_MODEL_PATH"


def data_root() -> Path | None:
    """Directory of the user's data sets: $SSFX_DATA, which data.root=DIR sets; None when it is not set."""
    named = os.environ.get(DATA_VARIABLE)
    return Path(named).expanduser().resolve() if named else None


def weights_folder() -> Path | None:
    """Folder of the weights to start from: $SSFX_MODEL_PATH, which model.path=DIR sets; None: random ones."""
    named = os.environ.get(WEIGHTS_VARIABLE)
    return Path(named) if named else None
