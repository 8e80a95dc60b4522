"""Scripts that train a part of the model, and another part later."""

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
        run.step(net, optimizer, step)


@script
def frozen_for_a_while(run: Run) -> None:
    """The body is frozen after the exchange began, with gradients in it or not, and trains again later."""
    model, optimizer, net = run.begin(Backbone(), find_unused_parameters=True)
    for step in range(2 * STEPS):
        if step in (3, 10):
            model.body.requires_grad_(False)
        if step in (6, 12):
            model.body.requires_grad_(True)
        run.step(net, optimizer, step)


class Adapters(nn.Module):
    """A frozen body with adapters, of which one is used at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(10, 16).requires_grad_(False)
        self.adapters = nn.ModuleList(nn.Linear(16, 4) for _ in range(2))
        self.adapters[1].requires_grad_(False)
        self.active = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.adapters[self.active](self.body(x).tanh())


@script
def adapters_in_turn(run: Run) -> None:
    """The second adapter is trained after the first, by an optimizer that is made then; nobody tells the exchange."""
    model = Adapters()
    optimizer = torch.optim.SGD(model.adapters[0].parameters(), RATE, momentum=0.9)
    net = run.wrap(model, optimizer)
    for step in range(2 * STEPS):
        if step == STEPS:
            model.active = 1
            model.adapters[0].requires_grad_(False)
            model.adapters[1].requires_grad_(True)
            optimizer = torch.optim.SGD(model.adapters[1].parameters(), RATE, momentum=0.9)
            run.note(optimizer)
            if run.options is None:  # DDP must be told
                net = run.wrap(model, optimizer)
        run.step(net, optimizer, step)


@script
def assigned_weights(run: Run) -> None:
    """A checkpoint is read with `assign=True`, which puts new weights into the model, and an optimizer made of them."""
    model, optimizer, net = run.begin(Backbone())
    for step in range(STEPS):
        if step == STEPS // 2:
            model.load_state_dict({key: value.clone() for key, value in model.state_dict().items()}, assign=True)
            optimizer = torch.optim.SGD(model.parameters(), RATE)
            run.follow(optimizer)
            if run.options is None:
                net = run.wrap(model, optimizer)
        run.step(net, optimizer, step)


@script
def a_layer_that_comes_later(run: Run) -> None:
    """The head gets another layer after some steps; every rank draws its first weights for itself."""
    model, optimizer, net = run.begin(Backbone())
    for step in range(STEPS):
        if step == STEPS // 2:
            torch.manual_seed(7)  # DDP makes them equal to rank 0's before the forward pass, ssfx after backward
            model.head = nn.Sequential(model.head, nn.Linear(4, 4))
            optimizer = torch.optim.SGD(model.parameters(), RATE)
            run.follow(optimizer)
            if run.options is None:
                net = run.wrap(model, optimizer)
        run.step(net, optimizer, step)


@script
def layers_frozen_by_rank(run: Run) -> None:
    """LISA with a seed of each rank's own: every rank trains other layers, and all of them move on all ranks."""
    model, optimizer, net = run.begin(Backbone(), find_unused_parameters=True)
    layers = [model.body[0], model.body[2]]
    for step in range(2 * STEPS):
        if step % 3 == 0:
            for number, layer in enumerate(layers):
                layer.requires_grad_((step // 3 + run.rank + number) % 2 == 0)
        run.step(net, optimizer, step)


@script
def last_layer_held(run: Run) -> None:
    """As DINO's freeze_last_layer, but in place: gradients of the head are zeros for the first half, then clipped."""
    model, optimizer, net = run.begin(Backbone())
    for step in range(2 * STEPS):
        inputs, targets = run.batch(step)
        optimizer.zero_grad()
        functional.mse_loss(net(inputs), targets).backward()
        if step < STEPS:
            for p in model.head.parameters():
                p.grad.zero_()
                run.books.cancelled(p)
        optimizer.step()
