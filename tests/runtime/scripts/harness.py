"""A user's script on the ranks of the pool: with torch DDP or with ssfx, and books on what its optimizers stepped with.

A script is a function of a `Run`, written as its author would write it: it asks `run.wrap` for what DDP or `attach`
makes of its model, and goes on as before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from runtime.pool import second_groups
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import ssfx

Options = dict[str, Any]
SCRIPTS: dict[str, Callable[[Run], None]] = {}
RATE = 0.1
STEPS = 8


def script(train: Callable[[Run], None]) -> Callable[[Run], None]:
    """Make a script known by its name."""
    SCRIPTS[train.__name__] = train
    return train


def network(inputs: int = 10, outputs: int = 4, width: int = 24) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, outputs))


class Books:
    """Sums by parameter: this rank's gradients that optimizers stepped with, and the averages that they applied.

    A gradient is noted when autograd has made it, before anything is exchanged. It counts when an optimizer steps while
    it, or its average, is in `.grad`, and does not when `.grad` was cleared before.
    """

    def __init__(self) -> None:
        self.used: dict[str, torch.Tensor] = {}
        self.applied: dict[str, torch.Tensor] = {}
        self._window: dict[str, torch.Tensor] = {}
        self._params: dict[str, nn.Parameter] = {}
        self._names: dict[nn.Parameter, str] = {}
        self._stepped: set[str] = set()
        self._pass = -1

    def keep(self, name: str, param: nn.Parameter) -> None:
        """Note the gradients of a parameter from now on; a model that was read again goes on under the old name."""
        if param in self._names:  # its module may have been put into another one: one account, two names
            self.used[name], self.applied[name] = (sums[self._names[param]] for sums in (self.used, self.applied))
            return
        zeros = torch.zeros_like(param, dtype=torch.float32, requires_grad=False)
        self.used.setdefault(name, zeros.clone())
        self.applied.setdefault(name, zeros.clone())
        self._window[name] = zeros
        self._params[name] = param
        self._names[param] = name
        frozen = not param.requires_grad
        param.requires_grad_(True)  # no hook can be set on a frozen one
        param.register_hook(lambda grad: self._made(name, grad))
        param.requires_grad_(not frozen)

    def _made(self, name: str, grad: torch.Tensor) -> None:
        task = torch._C._current_graph_task_id()
        if task != self._pass:  # a pass begins: what is in no `.grad` any more was thrown away
            self._pass = task
            for each in self._params:
                self._look(each)
        self._window[name] += grad.detach()

    def cancelled(self, param: nn.Parameter) -> None:
        """Note that the gradient of a parameter was set to zeros."""
        if param in self._names:
            self._window[self._names[param]].zero_()

    def cleared(self, optimizer: torch.optim.Optimizer) -> None:
        """Note that the gradients of an optimizer were thrown away."""
        for param in (p for group in optimizer.param_groups for p in group["params"]):
            if param in self._names:
                self._window[self._names[param]].zero_()

    def _look(self, name: str) -> None:
        left = self._params[name].grad
        if left is None:
            self._window[name].zero_()
        elif name in self._stepped:  # its average was used once and is used again
            self._window[name].copy_(left)
        self._stepped.discard(name)

    def stepped(self, optimizer: torch.optim.Optimizer, scale: float) -> None:
        """Note that an optimizer has stepped with gradients that were made at a loss scale."""
        for param in (p for group in optimizer.param_groups for p in group["params"]):
            name = self._names.get(param)
            if name is None or param.grad is None:
                continue
            self.used[name] += self._window[name] / scale
            self.applied[name] += param.grad.detach()
            self._window[name].zero_()
            self._stepped.add(name)


class Run:
    """One rank's run of a script: with ssfx's `options`, or with torch DDP where they are None."""

    def __init__(self, group: Any, rank: int, world: int, options: Options | None) -> None:
        self.group, self.rank, self.world, self.options = group, rank, world, options
        self.syncs: dict[str, Any] = {}
        self.models: dict[str, nn.Module] = {}
        self.books = Books()
        self.scaler: torch.amp.GradScaler | None = None
        self._optimizers: list[torch.optim.Optimizer] = []
        torch.manual_seed(1)

    def wrap(self, model: nn.Module, optimizer: Any, name: str = "net", **of_ddp: Any) -> Any:
        """Return the model with an exchange of gradients; under a name that was given before, that one ends."""
        bare = getattr(model, "_orig_mod", model)
        self.models[name] = bare
        if self.options is None:
            return DistributedDataParallel(model, process_group=self.group, **of_ddp)
        if name in self.syncs:
            self.syncs[name].detach()
        group = second_groups[self.world] if set(self.syncs) - {name} else self.group
        self.syncs[name] = ssfx.attach(model, optimizer, scaler=self.scaler, process_group=group, **self.options)
        for each, param in bare.named_parameters():
            self.books.keep(f"{name}/{each}", param)
        for one in optimizer if isinstance(optimizer, list) else [optimizer]:
            self.note(one)
        return model

    def begin(self, model: nn.Module, momentum: float = 0.0, **of_ddp: Any) -> tuple[Any, torch.optim.Optimizer, Any]:
        """Return the model, plain SGD for it, and what `wrap` makes of both."""
        optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=momentum)
        return model, optimizer, self.wrap(model, optimizer, **of_ddp)

    def step(self, net: Any, optimizer: torch.optim.Optimizer, number: int) -> None:
        """Train one step as most scripts do, on the batch of a number."""
        inputs, targets = self.batch(number)
        optimizer.zero_grad()
        functional.mse_loss(net(inputs), targets).backward()
        optimizer.step()

    def note(self, optimizer: torch.optim.Optimizer) -> None:
        """Keep books on the steps of an optimizer; needed for those that `wrap` was not given."""
        if self.options is not None and not any(optimizer is one for one in self._optimizers):
            self._optimizers.append(optimizer)
            optimizer.register_step_post_hook(self._after_step)
            clear = optimizer.zero_grad

            def clears(set_to_none: bool = True) -> None:
                clear(set_to_none)
                self.books.cleared(optimizer)

            optimizer.zero_grad = clears  # type: ignore[method-assign]

    def follow(self, optimizer: torch.optim.Optimizer) -> None:
        """Keep books on weights that came to the models, and on the optimizer that was made of them."""
        if self.options is not None:
            for label, model in self.models.items():
                for each, param in model.named_parameters():
                    self.books.keep(f"{label}/{each}", param)
            self.note(optimizer)

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self.books.stepped(optimizer, 1.0 if self.scaler is None else self.scaler.get_scale())

    def batch(self, number: int, size: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
        """Return this rank's inputs (size, 10) and targets (size, 4) of a number."""
        generator = torch.Generator().manual_seed(7919 * self.rank + number)
        return torch.randn(size, 10, generator=generator), torch.randn(size, 4, generator=generator)

    def weights(self) -> torch.Tensor:
        """Return all parameters of all models in a row."""
        return torch.cat([p.detach().reshape(-1).float() for model in self.models.values() for p in model.parameters()])

    def ranks_agree(self) -> bool:
        """True if all ranks have the same bits in their parameters."""
        mine = self.weights()
        first = mine.clone()
        dist.broadcast(first, dist.get_global_rank(self.group, 0), group=self.group)
        return torch.equal(mine, first)

    def mass(self) -> tuple[float, float, float]:
        """Return the worst violation of applied + kept = used over all ranks, the most kept, and the most used."""
        worst = most_kept = most_used = 0.0
        for label, sync in self.syncs.items():
            memory = sync.store.state_dict()
            for each, _ in self.models[label].named_parameters():
                name = f"{label}/{each}"
                used = self.books.used[name].clone()
                kept = memory.get(each, {}).get("residual", torch.zeros_like(used)).reshape(used.shape)
                balance = used - kept / sync.store.loss_scale
                most_kept = max(most_kept, float(kept.abs().max()))
                dist.all_reduce(balance, group=self.group)
                dist.all_reduce(used, group=self.group)
                scale = 1.0 + float(used.abs().max())
                missing = (balance - self.world * self.books.applied[name]).abs().max()
                worst, most_used = max(worst, float(missing) / scale), max(most_used, float(used.abs().max()))
        return worst, most_kept, most_used

    def detach(self) -> None:
        for sync in self.syncs.values():
            sync.detach()
