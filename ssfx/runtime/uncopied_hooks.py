"""What an exchange puts on a model and a copy of the model must not take along: a copy exchanges nothing.

`copy.deepcopy`, `AveragedModel` and whole-model `torch.save` copy a module's attributes and forward hooks. A bound
method there would take the exchange with it, threads and process group included.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch


class Uncopied:
    """A callable that stays with its model: in a copy, or read from a file, `instead` stands in its place.

    `instead` must be a function or class that pickle finds by its name. `keeps` lives as long as this does.
    """

    def __init__(self, call: Callable[..., Any], instead: Callable[..., Any], keeps: object = None) -> None:
        self._call, self._instead, self._keeps = call, instead, keeps

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call what is held."""
        return self._call(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Callable[..., Any]:
        return self._instead

    def __reduce__(self) -> tuple[Any, ...]:
        return _itself, (self._instead,)


def hook(call: Callable[..., Any], keeps: object = None) -> Uncopied:
    """Return `call` as a hook of a module that does nothing in a copy; the module then keeps `keeps` alive."""
    return Uncopied(call, nothing, keeps)


def timing_hook(call: Callable[..., Any]) -> Uncopied:
    """Return `call` as such a hook that reads the clock, which torch.compile does not look into."""
    reason = "ssfx times forward passes here; compile the model before ssfx.attach if it must be one graph"
    return Uncopied(torch.compiler.disable(call, reason=reason), nothing)


def no_sync_of(no_sync: Callable[[], Any]) -> Uncopied:
    """Return `no_sync` as an attribute of a module; a copy's is an empty context."""
    return Uncopied(no_sync, nullcontext)


def nothing(*_: Any, **__: Any) -> None:
    """Stand in for a hook."""


def _itself(call: Callable[..., Any]) -> Callable[..., Any]:
    return call
