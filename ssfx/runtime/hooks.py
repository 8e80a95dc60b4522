"""What an exchange puts on a model: hooks that a copy does not take along, and what scripts for DDP expect there.

`copy.deepcopy`, `AveragedModel` and whole-model `torch.save` copy a module's attributes and forward hooks. A bound
method there would take the exchange with it, threads and process group included.
"""

import logging
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

_log = logging.getLogger("ssfx")
_ACCUMULATE = "require_backward_grad_sync"
_ATTRIBUTES = ("require_forward_param_sync", "broadcast_buffers", "find_unused_parameters", "static_graph", "reducer")


class Uncopied:
    """A callable that stays with its model: in a copy, or read from a file, `instead` stands in its place.

    `instead` must be a function or class that pickle finds by its name. `keeps` lives as long as this does.
    """

    def __init__(self, call: Callable[..., Any], instead: Callable[..., Any], keeps: object = None) -> None:
        self._call, self._instead, self._keeps = call, instead, keeps

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the held function."""
        return self._call(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Callable[..., Any]:
        return self._instead

    def __reduce__(self) -> tuple[Any, ...]:
        return _itself, (self._instead,)


def hook(call: Callable[..., Any], keeps: object = None) -> Uncopied:
    """Return `call` as a hook of a module that does nothing in a copy; the module then keeps `keeps` alive."""
    return Uncopied(call, nothing, keeps)


def timing_hook(call: Callable[..., Any]) -> Uncopied:
    """Return `call` as a hook that reads the clock; torch.compile does not trace it."""
    reason = "ssfx times forward passes here; compile the model before ssfx.attach if it must be one graph"
    return Uncopied(torch.compiler.disable(call, reason=reason), nothing)


def no_sync_of(no_sync: Callable[[], Any]) -> Uncopied:
    """Return `no_sync` as an attribute of a module; a copy's is an empty context."""
    return Uncopied(no_sync, nullcontext)


def nothing(*_: Any, **__: Any) -> None:
    """Stand in for a hook."""


def _itself(call: Callable[..., Any]) -> Callable[..., Any]:
    return call


class DdpHabits:
    """Gives the bare model DDP's `no_sync`, reads its `require_backward_grad_sync`, and notices the rest.

    Nothing is called `module`: a model that is its own `module` would send scripts that unwrap models round for ever.
    """

    def __init__(self, model: torch.nn.Module, no_sync: Callable[[], Any]) -> None:
        bare: torch.nn.Module = getattr(model, "_orig_mod", model)  # where torch.compile's wrapper puts attributes
        self._attributes = bare.__dict__
        self._added = not hasattr(bare, "no_sync")
        if self._added:
            self._attributes["no_sync"] = no_sync_of(no_sync)
        self._seen = set(self._attributes)

    @property
    def accumulates(self) -> bool:
        """True while the script has set `require_backward_grad_sync` to False, as inside `no_sync`."""
        return not self._attributes.get(_ACCUMULATE, True)

    def look(self) -> None:
        """Log a line for every attribute of DDP that was set since and has no effect."""
        if len(self._attributes) == len(self._seen):
            return
        for name in _ATTRIBUTES:
            if name in self._attributes and name not in self._seen:
                _log.warning(
                    "model.%s was set, an attribute of DistributedDataParallel that has no effect on a model with ssfx "
                    "attached (docs/attach.md, what else changes in your script)",
                    name,
                )
        self._seen = set(self._attributes)

    def close(self) -> None:
        """Take `no_sync` off the model."""
        if self._added:
            self._attributes.pop("no_sync", None)
            self._added = False
