"""Torchvision, also where its compiled extension cannot be loaded.

The extension of a CUDA build links against CUDA libraries that a CPU-only torch does not bring. Torchvision then stops
while it describes the extension's operators to torch, although models use none of them. Declaring those operators
ourselves is enough for it to import.
"""

import functools
import importlib
import re
import sys
from typing import Any

import torch

from ssfx.core.errors import ConfigError

# Torchvision describes exactly these two without asking whether the extension is loaded.
_SCHEMAS = {name: f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor" for name in ("nms", "qnms")}
_MISSING = re.compile(r"^operator torchvision::(\w+) does not exist$")


def import_torchvision() -> Any:
    """Return the torchvision module; ConfigError with an installation hint when it cannot be imported."""
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as error:
        found = _MISSING.match(str(error))
        if found is None or found[1] not in _SCHEMAS:
            raise _mismatch(error) from error
    except ImportError as error:
        raise _mismatch(error) from error
    _declare_operators()
    for module in [m for m in sys.modules if m.partition(".")[0] == "torchvision"]:
        del sys.modules[module]
    try:
        return importlib.import_module("torchvision")
    except (ImportError, RuntimeError) as error:
        raise _mismatch(error) from error


@functools.cache
def _declare_operators() -> torch.library.Library:
    # The declarations live as long as the library object, which the cache keeps.
    library = torch.library.Library("torchvision", "FRAGMENT")
    for schema in _SCHEMAS.values():
        library.define(schema)
    return library


def _mismatch(error: Exception) -> ConfigError:
    reason = str(error).partition("\n")[0]
    return ConfigError(
        f"torchvision does not import next to torch {torch.__version__} ({reason}); install a matching pair, "
        "for example: pip install --upgrade torch torchvision --index-url https://download.pytorch.org/whl/cpu"
    )
