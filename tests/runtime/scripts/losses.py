"""Scripts with several losses, or with losses that have weights of their own."""

from contextlib import nullcontext

import torch
from runtime.scripts.harness import RATE, STEPS, Run, network, script
from torch import nn
from torch.nn import functional


@script
def two_losses(run: Run) -> None:
    """Each loss has its own forward and backward pass; the optimizer steps once with both."""
    _, optimizer, net = run.begin(network(), momentum=0.9)
    for step in range(STEPS):
        inputs, targets = run.batch(step)
        optimizer.zero_grad()
        functional.mse_loss(net(inputs), targets).backward()
        (0.1 * net(inputs).abs().mean()).backward()
        optimizer.step()


class Tasks(nn.Module):
    """A trunk, and a head for each task; one of them is used at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(10, 24), nn.Tanh())
        self.heads = nn.ModuleList(nn.Linear(24, 4) for _ in range(2))

    def forward(self, x: torch.Tensor, task: int) -> torch.Tensor:
        return self.heads[task](self.trunk(x))


@script
def tasks_in_turn(run: Run) -> None:
    """Multi-task training: in each step a head has no gradient, in some steps another one on each rank."""
    _, optimizer, net = run.begin(Tasks(), find_unused_parameters=True)
    for step in range(STEPS):
        inputs, targets = run.batch(step)
        optimizer.zero_grad()
        functional.mse_loss(net(inputs, (step // 2 + step % 2 * run.rank) % 2), targets).backward()
        optimizer.step()


class Proxies(nn.Module):
    """A metric-learning loss: a direction for each class, trained with the model."""

    def __init__(self, classes: int = 5) -> None:
        super().__init__()
        self.directions = nn.Parameter(torch.randn(classes, 4))

    def forward(self, features: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(
            8 * functional.normalize(features) @ functional.normalize(self.directions).T, classes
        )


class WithLoss(nn.Module):
    """A model and its loss in one module."""

    def __init__(self, model: nn.Module, loss: nn.Module) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, x: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        return self.loss(self.model(x), classes)


def _classes(run: Run, step: int) -> torch.Tensor:
    return torch.randint(5, (8,), generator=torch.Generator().manual_seed(31 * run.rank + step))


@script
def metric_learning(run: Run) -> None:
    """The loss's weights are exchanged with the model's, in one module."""
    both = WithLoss(network(), Proxies())
    optimizer = torch.optim.SGD(both.parameters(), RATE, momentum=0.9)
    net = run.wrap(both, optimizer)
    for step in range(STEPS):
        optimizer.zero_grad()
        net(run.batch(step)[0], _classes(run, step)).backward()
        optimizer.step()


@script
def metric_learning_apart(run: Run) -> None:
    """The model and the loss are wrapped one by one; one optimizer steps both, over windows of two passes."""
    model, loss = network(), Proxies()
    optimizer = torch.optim.SGD([*model.parameters(), *loss.parameters()], RATE)
    net, criterion = run.wrap(model, optimizer), run.wrap(loss, optimizer, "loss")
    for step in range(2 * STEPS):
        last = bool(step % 2)
        with nullcontext() if last else net.no_sync(), nullcontext() if last else criterion.no_sync():
            criterion(net(run.batch(step)[0]), _classes(run, step)).backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
