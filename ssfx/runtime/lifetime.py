"""How long an exchange is on its model: one at a time, alone until there is a process group, freed when dropped.

A script that makes one model after another (a search, a test, a notebook) forgets `detach`. Model, optimizer and
exchange refer to one another, so they go when Python collects garbage, on each rank at a moment of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary, finalize

import torch
import torch.distributed as dist

from ssfx.collectives.comm import Comm
from ssfx.core.errors import ConfigError
from ssfx.runtime.exchange import Exchange
from ssfx.runtime.liveness import Peers
from ssfx.runtime.offload import HostWorker
from ssfx.runtime.queue import ExchangeQueue

_attached: WeakKeyDictionary[torch.nn.Module, Callable[[], Iterable[torch.nn.Parameter]] | None] = WeakKeyDictionary()
"""Models with an exchange, and what returns the parameters that it covers; None: all of the model's."""


def check_free(model: torch.nn.Module) -> None:
    """Raise ConfigError if an exchange is attached to `model`, or to another one that has a weight of it."""
    if model in _attached:
        raise ConfigError("this model has an exchange attached already; detach() that one first")
    taken = {id(p) for p in attached_parameters()}
    for name, p in model.named_parameters():
        if p.requires_grad and id(p) in taken:
            raise ConfigError(
                f"parameter {name} is in another model that has an exchange attached, and would be averaged twice; "
                "attach once, to a ModuleList of both models"
            )


def claim_model(model: torch.nn.Module, covered: Callable[[], Iterable[torch.nn.Parameter]] | None = None) -> None:
    """Note that an exchange is attached to `model`, for all its parameters or those that `covered` returns."""
    _attached[model] = covered


def release_model(model: torch.nn.Module) -> None:
    """Note that `model` is free again."""
    _attached.pop(model, None)


def attached_parameters() -> Iterator[torch.nn.Parameter]:
    """Yield the parameters of all models to which an exchange is attached, as far as it covers them."""
    for model, covered in list(_attached.items()):
        yield from model.parameters() if covered is None else covered()


class LoneRank:
    """Watches an exchange that was attached without a process group for a group of several ranks that comes later.

    ConfigError in the first backward pass, or in any step of an optimizer, once there is such a group.
    """

    def __init__(
        self, params: Iterable[torch.nn.Parameter], optimizers: Iterable[torch.optim.Optimizer], process_group: Any
    ) -> None:
        self._handles: list[Any] = []
        self._first: list[Any] = []
        if process_group is not None or dist.is_initialized():
            return
        self._first = [p.register_post_accumulate_grad_hook(lambda _: self._check()) for p in params]
        self._handles = [optimizer.register_step_pre_hook(lambda *_: self._step()) for optimizer in optimizers]

    def _check(self) -> None:
        if dist.is_initialized() and dist.get_world_size() > 1:
            raise ConfigError(
                "the process group was made after ssfx.attach, which therefore exchanges nothing; "
                "call torch.distributed.init_process_group before ssfx.attach"
            )

    def _step(self) -> None:
        self._check()
        _remove(self._first)

    def close(self) -> None:
        """Stop watching."""
        _remove(self._first)
        _remove(self._handles)


def _remove(handles: list[Any]) -> None:
    for handle in handles:
        handle.remove()
    handles.clear()


def when_dropped(sync: object, exchange: Exchange, peers: Peers) -> finalize[..., Any]:
    """Return what ends the threads of `sync` and frees its process group once nothing refers to it any more."""
    ending = finalize(sync, _let_go, os.getpid(), exchange.queue, exchange.host, exchange.comm, peers)
    ending.atexit = False  # a process that ends says so to its peers itself
    return ending


def _let_go(process: int, queue: ExchangeQueue, host: HostWorker, comm: Comm, peers: Peers) -> None:
    if process != os.getpid():  # a child that was forked, and has none of the threads
        return
    idle = queue.idle
    queue.stop()
    host.close(wait=False)
    with suppress(Exception):  # the store may have gone first, and then the note is never read
        peers.close("has dropped its model")
    if idle:  # else a peer may still be sending, and the next exchange would take that for its own
        comm.release()
