"""Scripts whose steps take several passes, and passes that are run again: SAM, LBFGS, activation checkpointing."""

from collections.abc import Callable
from typing import Any

import torch
from runtime.scripts.harness import RATE, STEPS, Run, network, script
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class Sam(torch.optim.Optimizer):
    """Sharpness-aware minimisation around another optimizer, as its users write it."""

    def __init__(self, params: Any, base: Callable[..., torch.optim.Optimizer], rho: float, **options: Any) -> None:
        super().__init__(params, {"rho": rho, **options})
        self.base_optimizer = base(self.param_groups, **options)
        self.param_groups = self.base_optimizer.param_groups

    @torch.no_grad()
    def first_step(self) -> None:
        """Climb to where the loss is worst nearby, and clear the gradients that led there."""
        held = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        norm = torch.stack([p.grad.norm() for p in held]).norm()
        for p in held:
            self.state[p]["climbed"] = climbed = p.grad * (self.param_groups[0]["rho"] / (norm + 1e-12))
            p.add_(climbed)
        self.zero_grad()

    @torch.no_grad()
    def second_step(self) -> None:
        """Go back, and step with the gradients from there."""
        for p in (p for group in self.param_groups for p in group["params"]):
            if "climbed" in self.state[p]:
                p.sub_(self.state[p].pop("climbed"))
        self.base_optimizer.step()
        self.zero_grad()

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Both steps, with the second pass in a closure."""
        self.first_step()
        torch.enable_grad()(closure)()
        self.second_step()


@script
def thrown_away_by_data(run: Run) -> None:
    """A pass for its own sake; its gradients, and those of each step, are cleared by `.data`, which autograd misses."""
    model, optimizer, net = run.begin(network())

    def clear() -> None:
        for p in model.parameters():
            p.grad.data.zero_()
            run.books.cancelled(p)

    for step in range(STEPS):
        net(run.batch(STEPS + step)[0]).sum().backward()
        clear()
        inputs, targets = run.batch(step)
        functional.mse_loss(net(inputs), targets).backward()
        optimizer.step()
        clear()


@script
def sam(run: Run) -> None:
    """The two steps called by hand; what the inner optimizer steps with is the second pass alone."""
    model = network()
    optimizer = Sam(model.parameters(), torch.optim.SGD, rho=0.05, lr=RATE, momentum=0.9)
    net = run.wrap(model, optimizer)
    run.note(optimizer.base_optimizer)
    for step in range(STEPS):
        inputs, targets = run.batch(step)
        functional.mse_loss(net(inputs), targets).backward()
        optimizer.first_step()
        functional.mse_loss(net(inputs), targets).backward()
        optimizer.second_step()


@script
def sam_with_closure(run: Run) -> None:
    """The same as one step with a closure; the gradients are cleared inside of it."""
    model = network()
    optimizer = Sam(model.parameters(), torch.optim.SGD, rho=0.05, lr=RATE)
    net = run.wrap(model, optimizer)
    run.note(optimizer.base_optimizer)
    for step in range(STEPS):
        inputs, targets = run.batch(step)

        def again(inputs: torch.Tensor = inputs, targets: torch.Tensor = targets) -> torch.Tensor:
            loss = functional.mse_loss(net(inputs), targets)
            loss.backward()
            return loss

        again()
        optimizer.step(again)


@script
def lbfgs(run: Run) -> None:
    """Several evaluations in a step, each of which clears the gradients of the one before."""
    model = network()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.2, max_iter=3, tolerance_change=0, tolerance_grad=0)
    net = run.wrap(model, optimizer)
    for step in range(STEPS // 2):
        inputs, targets = run.batch(step)

        def closure(inputs: torch.Tensor = inputs, targets: torch.Tensor = targets) -> float:
            optimizer.zero_grad()
            loss = functional.mse_loss(net(inputs), targets)
            loss.backward()
            return loss.item()

        optimizer.step(closure)


class Checkpointed(nn.Module):
    """Three blocks, of which the middle one is computed again during backward."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(10, 16), nn.Linear(16, 4)
        self.middle = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, 16))
        self.reentrant = reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(checkpoint(self.middle, self.first(x).tanh(), use_reentrant=self.reentrant))


def _checkpointing(run: Run, reentrant: bool) -> None:
    _, optimizer, net = run.begin(Checkpointed(reentrant), momentum=0.9)
    torch.manual_seed(run.rank)
    for step in range(STEPS):
        run.step(net, optimizer, step)


@script
def checkpointing_reentrant(run: Run) -> None:
    """Activation checkpointing in a nested backward pass, with dropout."""
    _checkpointing(run, reentrant=True)


@script
def checkpointing(run: Run) -> None:
    """Activation checkpointing by saved-tensor hooks, with dropout."""
    _checkpointing(run, reentrant=False)
