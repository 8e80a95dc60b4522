"""Scripts that train a part of the model, and another part later."""

from __future__ import annotations

import torch
from runtime.scripts.harness import RATE, STEPS, Run, script
from torch import nn
from torch.nn import functional


class Backbone(nn.Module):
    """A body to be frozen, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh())
        self.head = nn.Linear(24, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


@script
def gradual_unfreezing(run: Run) -> None:
    """Layers that were frozen when the exchange began are given to the optimizer one by one."""
    model = Backbone()
    model.body.requires_grad_(False)
    optimizer = torch.optim.SGD(model.head.parameters(), RATE, momentum=0.9)
    net = run.wrap(model, optimizer)
    for step in range(2 * STEPS):
        if step in (4, 9):
            layer = model.body[2 if step == 4 else 0]
            layer.requires_grad_(True)
            optimizer.add_param_group({"params": list(layer.parameters()), "lr": RATE / 2})
            if run.options is None:  # DDP must be told
                net = run.wrap(model, optimizer)
        inputs, targets = run.batch(step)
        optimizer.zero_grad()
        functional.mse_loss(net(inputs), targets).backward()
        optimizer.step()


@script
def frozen_for_a_while(run: Run) -> None:
    """The body is frozen after the exchange began, with gradients in it or not, and trains again later."""
    model = Backbone()
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    net = run.wrap(model, optimizer, find_unused_parameters=True)
    for step in range(2 * STEPS):
        if step in (3, 10):
            model.body.requires_grad_(False)
        if step in (6, 12):
            model.body.requires_grad_(True)
        inputs, targets = run.batch(step)
        optimizer.zero_grad()
        functional.mse_loss(net(inputs), targets).backward()
        optimizer.step()
