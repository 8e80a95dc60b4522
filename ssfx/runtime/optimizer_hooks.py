"""Which optimizers step exchanged weights, and whether they move parameters that are not exchanged.

A parameter of the loss (ArcFace, a learned temperature) that the optimizer holds and no attached model has would drift
apart between ranks. And an optimizer that is made after `attach` holds the model's parameters without its hooks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from typing import Any, ClassVar
from weakref import WeakKeyDictionary, WeakSet, ref

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from ssfx.core.errors import ConfigError

_log = logging.getLogger("ssfx")


class OptimizerHooks:
    """The optimizers of an exchange: those given to `attach`, and later ones, from their first step on.

    `ids` returns the ids of the model's parameters. `everywhere` returns the parameters of all attached models that are
    exchanged once they have a gradient, those of this one included.
    `take_up` is called with an optimizer that was made later, before its first step. What steps inside the step of
    a known optimizer (SAM's inner one) is part of that; `used` is called with it when it has.
    """

    _all: ClassVar[WeakSet[OptimizerHooks]] = WeakSet()
    _listening: ClassVar[tuple[Any, ...]] = ()

    def __init__(
        self,
        given: Iterable[torch.optim.Optimizer],
        ids: Callable[[], Collection[int]],
        everywhere: Callable[[], Iterable[torch.nn.Parameter]],
        take_up: Callable[[torch.optim.Optimizer], None],
        used: Callable[[torch.optim.Optimizer], None],
    ) -> None:
        self._ids_now, self._everywhere, self._take_up, self._used = ids, everywhere, take_up, used
        self._known = [ref(optimizer) for optimizer in given]
        self._sizes: WeakKeyDictionary[torch.optim.Optimizer, list[int]] = WeakKeyDictionary()
        """How many parameters each group of an optimizer had when it was looked through."""
        self._foreign: WeakKeyDictionary[torch.optim.Optimizer, list[torch.nn.Parameter]] = WeakKeyDictionary()
        self._stepping: torch.optim.Optimizer | None = None
        OptimizerHooks._all.add(self)
        if not OptimizerHooks._listening:
            # torch.compile of a step must not look into these.
            begins, ended = torch.compiler.disable(_begins), torch.compiler.disable(_ended)
            OptimizerHooks._listening = (
                register_optimizer_step_pre_hook(begins),
                register_optimizer_step_post_hook(ended),
            )

    @property
    def known(self) -> tuple[torch.optim.Optimizer, ...]:
        """The optimizers that still exist, in the order in which they were made known."""
        return tuple(optimizer for made in self._known if (optimizer := made()) is not None)

    def begins(self, optimizer: torch.optim.Optimizer) -> None:
        """Note that a step begins; ConfigError if it would move a parameter that is not exchanged."""
        if self._stepping is not None and optimizer is not self._stepping:
            return
        sizes = [len(group["params"]) for group in optimizer.param_groups]
        if not any(made() is optimizer for made in self._known):
            ids = self._ids_now()
            if not any(id(p) in ids for group in optimizer.param_groups for p in group["params"]):
                return
            self._known.append(ref(optimizer))
            self._take_up(optimizer)
            _log.info("a new %s steps the attached model; it is exchanged as before", type(optimizer).__name__)
        self._stepping = optimizer
        if sizes != self._sizes.get(optimizer):
            self._sizes[optimizer] = sizes
            self._foreign[optimizer] = [p for _, p in self._not_exchanged(optimizer)]
        if any(p.grad is not None for p in self._foreign[optimizer]):
            self._refuse(optimizer)

    def ended(self, optimizer: torch.optim.Optimizer) -> None:
        """Note that a step ended."""
        if optimizer is self._stepping:
            self._stepping = None
        elif self._stepping is not None:
            self._used(optimizer)

    def close(self) -> None:
        """Stop listening."""
        OptimizerHooks._all.discard(self)
        if not OptimizerHooks._all:
            for handle in OptimizerHooks._listening:
                handle.remove()
            OptimizerHooks._listening = ()

    def _not_exchanged(self, optimizer: torch.optim.Optimizer) -> list[tuple[str, torch.nn.Parameter]]:
        exchanged = {id(p) for p in self._everywhere()}
        missing = []
        for number, group in enumerate(optimizer.param_groups):
            names = group.get("param_names") or [""] * len(group["params"])
            for place, (name, p) in enumerate(zip(names, group["params"], strict=True)):
                if id(p) not in exchanged:
                    called = name or f"number {place} of group {number}"
                    missing.append((f"{called}, shape {tuple(p.shape)}", p))
        return missing

    def _refuse(self, optimizer: torch.optim.Optimizer) -> None:
        moved = [text for text, p in self._not_exchanged(optimizer) if p.grad is not None]
        if not moved:  # another model that has them was attached after the last look
            self._sizes.pop(optimizer)
            return
        self._stepping = None
        more = f" and {len(moved) - 3} more" if len(moved) > 3 else ""
        raise ConfigError(
            f"{type(optimizer).__name__} steps parameters of no attached model ({'; '.join(moved[:3])}{more}), which "
            "would differ between ranks; attach a ModuleList of the model and the module that has them (a loss with "
            "weights? adapters that came after fully_shard?), or give them an optimizer that attach does not get"
        )


def _begins(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    for exchange in list(OptimizerHooks._all):
        exchange.begins(optimizer)


def _ended(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    for exchange in list(OptimizerHooks._all):
        exchange.ended(optimizer)
