"""A table of scripts: what each does, where people do so, and what must come of it.

A script is a function of a `Rank`. It is run on virtual ranks, one of its cases on real ones, too. What holds for all
is checked here: each model that it attached ends finite and equal on all ranks, and is detached.

    habits = Habits(__name__)
    test_on_virtual_ranks, test_on_real_ranks = habits.tests()

    @habits("where scripts do so, or which promise it is", {}, {"scheme": "topk"}, at=[0, 2])
    def what_holds(one, at): ...
"""

from __future__ import annotations

import importlib
import itertools
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from runtime.cases import ident
from runtime.models import build, loss_of
from runtime.ranks import Virtual, add_up, among, is_rank_0s
from runtime.work import costs_for
from torch import nn

import ssfx
from ssfx.core.errors import ConfigError

Options = dict[str, Any]
TOPK: Options = {"scheme": "per_tensor", "compressor": "topk", "density": 0.05}
ALL: Options = TOPK | {"density": 1.0}
DGC: Options = {"scheme": "ssfusion_oi", "rule": "paper", "compressor": "topk", "density": 0.05, "memory": "dgc"}
SSFUSION: Options = DGC | {"memory": None}


@dataclass
class Rank:
    """One rank of a script."""

    group: Any
    rank: int
    world: int
    options: Options
    synced: list[tuple[nn.Module, Any]] = field(default_factory=list)

    def attach(self, model: Any, optimizer: Any = None, momentum: float = 0.9, **more: Any) -> tuple[Any, Any]:
        """Return the optimizer, plain SGD unless given, and the exchange; options of the case unless said otherwise."""
        optimizer = sgd(model, momentum) if optimizer is None else optimizer
        options = {"costs": costs_for(self.world), **self.options, **among(self.group), **more}
        self.synced.append((model, ssfx.attach(model, optimizer, **options)))
        return optimizer, self.synced[-1][1]

    def mlp(self, momentum: float = 0.9, **more: Any) -> tuple[Any, Any, Any]:
        """Return an attached model, its optimizer and its exchange."""
        model = build("mlp")
        return model, *self.attach(model, None, momentum, **more)

    def loss(self, model: Any, step: int, kind: str = "mlp") -> torch.Tensor:
        """Return the loss of this rank's batch."""
        return loss_of(model, self.rank, step, kind)

    def train(self, model: Any, optimizer: Any, steps: Sequence[int], loss: Any = None) -> None:
        """Train plainly; `loss(step)` instead of the usual one. Several optimizers step in their order."""
        optimizers = optimizer if isinstance(optimizer, list) else [optimizer]
        for step in steps:
            for one in optimizers:
                one.zero_grad()
            (loss(step) if loss else self.loss(model, step)).backward()
            for one in optimizers:
                one.step()

    def average(self, model: nn.Module) -> None:
        """Average gradients by hand, as torch DDP would."""
        for p in model.parameters():
            there = torch.tensor([float(p.grad is not None)])
            add_up(there, self.group)
            if there:  # on some rank, as with find_unused_parameters
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad
                add_up(p.grad, self.group)
                p.grad /= self.world

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the sum over ranks."""
        total = tensor.detach().clone()
        add_up(total, self.group)
        return total

    def agree(self, tensors: Any) -> bool:
        """Return whether tensors, or a model's parameters, are the same on all ranks."""
        tensors = tensors.parameters() if isinstance(tensors, nn.Module) else tensors
        return not [one for one in tensors if not is_rank_0s(one, self.group)]

    def randn(self, step: int, *shape: int) -> torch.Tensor:
        """Return this rank's numbers of a step."""
        return torch.randn(*shape, generator=torch.Generator().manual_seed(100 * step + self.rank))

    def end(self) -> None:
        """Detach what was attached; it need not be equal on all ranks."""
        while self.synced:
            self.synced.pop()[1].detach()


def sgd(model: Any, momentum: float = 0.9) -> torch.optim.SGD:
    """Return the usual optimizer of a model, or of parameters."""
    return torch.optim.SGD(model.parameters() if isinstance(model, nn.Module) else model, lr=0.1, momentum=momentum)


def far(a: Any, b: Any) -> float:
    """Return the largest difference of two models' parameters."""
    return max(float((x - y).detach().abs().max()) for x, y in zip(a.parameters(), b.parameters(), strict=True))


@contextmanager
def refused(*words: str, kind: type[Exception] = ConfigError) -> Iterator[None]:
    """What is done inside is refused in one line with these words."""
    with pytest.raises(kind) as caught:
        yield
    said = str(caught.value)
    assert said
    assert "\n" not in said
    assert not [word for word in words if word not in said], said


@contextmanager
def heard(everywhere: bool = False) -> Iterator[list[str]]:
    """Collect what ssfx logs as a warning or worse, on this rank or on all virtual ones."""
    lines: list[str] = []
    handler, me = logging.Handler(logging.WARNING), threading.get_ident()
    handler.emit = lambda one: lines.append(one.getMessage()) if everywhere or one.thread == me else None  # type: ignore
    logging.getLogger("ssfx").addHandler(handler)
    try:
        yield lines
    finally:
        logging.getLogger("ssfx").removeHandler(handler)


@dataclass(frozen=True)
class Case:
    """A script with options and arguments."""

    script: Callable[..., None]
    world: int
    options: Options
    values: tuple[Any, ...]

    def run(self, group: Any, rank: int, world: int) -> None:
        """Run it on this rank."""
        one = Rank(group, rank, world, self.options)
        try:
            self.script(one, *self.values)
            for model, _ in one.synced:
                assert one.agree(model), "ranks end with other weights"
                assert all(bool(torch.isfinite(p).all()) for p in model.parameters())
        finally:
            one.end()


class Habits:
    """The scripts of a module, which has it as `habits`."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.cases: dict[str, Case] = {}
        self.virtual: list[Any] = []
        self.real: list[Any] = []

    def __call__(
        self, source: str, *options: Options, world: int | tuple[int, ...] = 2, real: str = "one", **axes: Any
    ) -> Any:
        """Put a script into the table, once for each of `options`, each `world` and each combination of its arguments.

        `source` says where scripts do so, or which promise it is. `real`: "one" of its cases is also run on real ranks,
        "only" on them, or "no".
        """
        worlds = world if isinstance(world, tuple) else (world,)

        def decorate(script: Callable[..., None]) -> Callable[..., None]:
            found = []
            for size, given, *values in itertools.product(worlds, options or ({},), *axes.values()):
                shown = [ident(given) or "default"] if len(options) > 1 else []
                shown += [str(size)] if len(worlds) > 1 else []
                name = "-".join([script.__name__, *shown, *map(str, values)])
                assert name not in self.cases, name
                self.cases[name] = Case(script, size, given, tuple(values))
                found.append(pytest.param(script.__name__, name, id=name))
            self.virtual += [] if real == "only" else found
            self.real += {"one": found[:1], "only": found, "no": []}[real]
            return script

        return decorate

    def tests(self) -> tuple[Any, Any]:
        """Return the tests of all cases."""

        @pytest.mark.filterwarnings("ignore:Using backward")
        @pytest.mark.parametrize(("script", "name"), self.virtual)
        def on_virtual_ranks(script: str, name: str) -> None:
            Virtual().run(run, self.cases[name].world, self.module, name)

        @pytest.mark.parametrize(("script", "name"), self.real)
        def on_real_ranks(pool: Any, script: str, name: str) -> None:
            pool.run(run, self.cases[name].world, self.module, name)

        return on_virtual_ranks, on_real_ranks


def run(group: Any, rank: int, world: int, module: str, name: str) -> None:
    """Run a case on this rank, which finds it by its module."""
    importlib.import_module(module).habits.cases[name].run(group, rank, world)
