"""What an exchange puts on a model and its optimizers: hooks that a copy does not take along, and DDP's habits.

`copy.deepcopy`, `AveragedModel` and whole-model `torch.save` copy a module's attributes and forward hooks. A bound
method there would take the exchange with it, threads and process group included. Hooks of gradients ask which backward
pass they run in: autograd graphs nest when checkpointing is reentrant, and may be given up.

A parameter of the loss (ArcFace, a learned temperature) that the optimizer holds and no attached model has would drift
apart between ranks. And an optimizer that is made after `attach` holds the model's parameters without its hooks.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import is_dataclass
from types import FrameType
from typing import Any, ClassVar
from weakref import WeakKeyDictionary, WeakSet, ref

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from ssfx.core.errors import ConfigError, RunError

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


def nothing(*_: Any, **__: Any) -> None:
    """Stand in for a hook."""


def _itself(call: Callable[..., Any]) -> Callable[..., Any]:
    return call


def when_reached(outputs: Any, call: Callable[[], None]) -> None:
    """Do `call` whenever a backward pass reaches a tensor of a model's outputs, before any gradient of the model.

    The node that made a tensor keeps it, so that the tensor is saved and copied as before.
    """
    if isinstance(outputs, torch.Tensor):
        inside = torch._C._is_tracing() or torch._C._functorch.peek_interpreter_stack() is not None
        if outputs.grad_fn is not None and not inside:
            outputs.grad_fn.register_prehook(lambda *_: call())
        return
    if isinstance(outputs, Mapping):
        parts: Iterable[Any] = outputs.values()
    elif isinstance(outputs, (list, tuple)):
        parts = outputs
    else:
        parts = vars(outputs).values() if is_dataclass(outputs) else ()
    for part in parts:
        when_reached(part, call)


class DdpHabits:
    """Gives the bare model DDP's `no_sync`, reads its `require_backward_grad_sync`, and notices the rest.

    Nothing is called `module`: a model that is its own `module` would send scripts that unwrap models round for ever.
    """

    def __init__(self, model: torch.nn.Module, no_sync: Callable[[], Any]) -> None:
        bare: torch.nn.Module = getattr(model, "_orig_mod", model)  # where torch.compile's wrapper puts attributes
        self._attributes = bare.__dict__
        self._added = not hasattr(bare, "no_sync")
        if self._added:
            self._attributes["no_sync"] = Uncopied(no_sync, nullcontext)
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


class BackwardPass:
    """Tells one backward pass with its nested graphs from the next, by autograd's graph task ids."""

    def __init__(self) -> None:
        self._tasks: set[int] = set()

    def begin(self) -> None:
        """Forget the graphs of the pass before."""
        self._tasks.clear()

    def enter(self) -> bool:
        """Return True when the calling hook is the first of its graph; RunError if the pass before never ended."""
        task: int = torch._C._current_graph_task_id()
        if task in self._tasks:
            return False
        if self._tasks and task > max(self._tasks) and not nested():
            raise RunError(
                "the backward pass before this one ended with an exception, so ranks may hold different gradients; "
                "let the exception end the run, or detach and attach again on every rank"
            )
        self._tasks.add(task)
        return True


def nested() -> bool:
    """Return True inside a backward pass that another one started (reentrant checkpointing).

    The engine runs nested graphs below the Python frame that started them. A thread of Python's own has one such frame
    for its outermost pass; a thread of the engine has none.
    """
    depth = 0
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        depth += frame.f_code.co_name == "_engine_run_backward"
        frame = frame.f_back
    of_python = not isinstance(threading.current_thread(), threading._DummyThread)
    return depth > (1 if of_python else 0)


class _Average(torch.autograd.Function):
    """An average over ranks in the place of a gradient that `backward(create_graph=True)` left with its graph."""

    @staticmethod
    def forward(*given: Any) -> torch.Tensor:  # the context, the parameter and the average
        average: torch.Tensor = given[-1]
        return average.clone()

    @staticmethod
    def backward(*_: Any) -> Any:
        raise ConfigError(
            "a gradient that was averaged over ranks cannot be differentiated: its graph, of backward(create_graph="
            "True), is that of this rank's loss alone; use torch.autograd.grad(loss, parameters, create_graph=True), "
            "whose gradients are this rank's own, and average what comes of them"
        )


def without_graph(parameter: torch.nn.Parameter, average: torch.Tensor) -> torch.Tensor:
    """Return a copy of `average` that requires a gradient; ConfigError for whoever differentiates it."""
    with torch.enable_grad():
        return _Average.apply(parameter, average)  # type: ignore[no-any-return]


def check_step(optimizer: object, *, under_way: bool) -> None:
    """Raise ConfigError for a step inside a backward pass, or while the exchange of one is under way."""
    if torch._C._current_graph_task_id() != -1:
        raise ConfigError(
            f"{type(optimizer).__name__}.step() was called inside the backward pass, before gradients were exchanged; "
            "step after loss.backward() instead of in a hook"
        )
    if under_way:
        raise ConfigError(
            "the last backward pass did not end its exchange: it ended with an exception, or gradients came in graphs "
            "nested in it and the loss from no output of the attached model; call the attached model itself, use "
            "checkpoint(..., use_reentrant=False), or call sync.synchronize() after backward"
        )


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
