"""Regions of autocast in code that is counted: noted where torch would disable them, because no GPU is here."""

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import torch

_NAMES = {torch.bfloat16: "bf16", torch.float16: "fp16"}


class Regions:
    """The precision that the code asks for at the moment: "" outside of autocast, "fp32" where it is switched off."""

    def __init__(self) -> None:
        self._open: list[str] = []

    @property
    def now(self) -> str:
        """The precision of the innermost region."""
        return self._open[-1] if self._open else ""

    def enter(self, precision: str) -> None:
        """A region begins."""
        self._open.append(precision)

    def leave(self) -> None:
        """The innermost region ends."""
        self._open.pop()


@contextlib.contextmanager
def autocast_regions() -> Iterator[Regions]:
    """Inside the block torch.autocast, for any kind of device, only notes what it asks for."""
    regions = Regions()
    kind: Any = torch.amp.autocast_mode.autocast
    before = kind.__init__, kind.__enter__, kind.__exit__

    def init(self: Any, device_type: str, dtype: Any = None, enabled: bool = True, *rest: Any, **named: Any) -> None:
        with warnings.catch_warnings(), contextlib.suppress(RuntimeError):
            warnings.simplefilter("ignore")
            before[0](self, device_type, dtype, enabled, *rest, **named)
        self.asked_precision = _asked(device_type, dtype) if enabled else "fp32"

    def enter(self: Any) -> Any:
        regions.enter(getattr(self, "asked_precision", None) or _asked(self.device, self.fast_dtype))
        return self

    def leave(_self: Any, *_error: Any) -> None:
        regions.leave()

    try:
        kind.__init__, kind.__enter__, kind.__exit__ = init, enter, leave
        yield regions
    finally:
        kind.__init__, kind.__enter__, kind.__exit__ = before


def _asked(device_type: str, dtype: Any) -> str:
    return _NAMES.get(dtype or torch.get_autocast_dtype("cpu" if device_type == "cpu" else "cuda"), "fp32")
