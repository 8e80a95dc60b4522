"""`torch`, `numpy`, `psutil` and `statistics`, imported when first used.

Components declare what they are (name, wire size, capabilities) in the same file as their tensor code, and the command
line reads those declarations without paying the seconds that importing torch costs. They import the name from here.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import statistics as statistics

    import numpy as numpy
    import psutil as psutil
    import torch as torch
else:

    class _LazyModule:
        def __init__(self, name: str) -> None:
            self.__dict__["_name"] = name

        def __getattr__(self, attribute: str) -> Any:
            value = getattr(importlib.import_module(self._name), attribute)
            self.__dict__[attribute] = value  # the second use is a plain attribute look-up
            return value

    torch = _LazyModule("torch")
    numpy = _LazyModule("numpy")
    psutil = _LazyModule("psutil")
    statistics = _LazyModule("statistics")
