"""Scripts that ssfx refuses, or that look as if it had to: what is said, or how far from torch DDP they end.

Their gradients are not those that autograd makes of what is attached, so no books are kept.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from runtime.scripts.adversarial import Halves
from runtime.scripts.harness import RATE, STEPS, Options, Run, network
from runtime.scripts.losses import Proxies
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import ssfx
from ssfx.core.errors import ConfigError


class Language(nn.Module):
    """An embedding and a head of the same shape."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(10, 12), nn.Linear(12, 10, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.embed(tokens))


def _train(run: Run, net: Any, optimizer: torch.optim.Optimizer, steps: int = STEPS) -> None:
    for step in range(steps):
        tokens = torch.randint(10, (8,), generator=torch.Generator().manual_seed(31 * run.rank + step))
        optimizer.zero_grad()
        functional.cross_entropy(net(tokens), tokens.flip(0)).backward()
        optimizer.step()


class Nested(nn.Module):
    """All that is used is checkpointed, so that its gradients come in graphs inside the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last, self.unused = nn.Linear(10, 24), nn.Linear(24, 4), nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = checkpoint(self.first, x.requires_grad_(), use_reentrant=True)
        return checkpoint(self.last, hidden, use_reentrant=True)


def tied_to_what_is_exchanged(run: Run) -> None:
    """The head takes the embedding's weight after the exchange began: no new parameter, so nothing is missed."""
    model, optimizer, net = run.begin(Language(), find_unused_parameters=True)
    model.head.weight = model.embed.weight
    _train(run, net, optimizer)


def _tripled(param: torch.Tensor) -> None:
    param.grad.mul_(3)


def hooks_after_the_exchange(run: Run) -> None:
    """Hooks that are set after the exchange began change gradients, before and after they are added to `.grad`."""
    model, optimizer, net = run.begin(network())
    model[0].weight.register_hook(lambda grad: grad.clamp(-0.02, 0.02))
    model[2].weight.register_post_accumulate_grad_hook(_tripled)
    for step in range(STEPS):
        run.step(net, optimizer, step)


def other_shapes(run: Run) -> None:
    """Layers make room for ones of other shapes, before the first step and midway, as a new head does."""
    model, optimizer, net = run.begin(network())
    for step in range(STEPS):
        if step in (0, STEPS // 2):
            torch.manual_seed(step)
            model[0], model[2] = nn.Linear(10, 12 + step), nn.Linear(12 + step, 4)
            net, optimizer = _made_anew(run, model)
        run.step(net, optimizer, step)


def data_of_other_shapes(run: Run) -> None:
    """A layer is made narrower by its weights' `.data`; parameters and optimizer stay."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    if run.options is None:
        net = run.wrap(model, optimizer)
    else:  # books would be kept in the old shapes
        net = run.models["net"] = model
        run.syncs["net"] = ssfx.attach(model, optimizer, process_group=run.group, **run.options)
    for step in range(STEPS):
        if step == STEPS // 2:
            optimizer.zero_grad()
            for p in model[0].parameters():
                p.data = p.data[:20].clone()
            model[2].weight.data = model[2].weight.data[:, :20].clone()
            if run.options is None:  # what autograd knows of a weight's shape outlives DDP's reducer
                for layer in (model[0], model[2]):
                    layer.weight = nn.Parameter(layer.weight.data)
                model[0].bias = nn.Parameter(model[0].bias.data)
                net, optimizer = _made_anew(run, model)
        run.step(net, optimizer, step)


def _made_anew(run: Run, model: nn.Module) -> tuple[Any, torch.optim.Optimizer]:
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    return run.wrap(model, optimizer) if run.options is None else model, optimizer


def loss_by_closure(run: Run) -> None:
    """Every pass is local, and the optimizer is given the loss by a closure: the step exchanges what has been added."""
    _, optimizer, net = run.begin(network())
    for step in range(STEPS):
        inputs, targets = run.batch(step)
        optimizer.zero_grad()
        with nullcontext() if run.options is None else net.no_sync():
            loss = functional.mse_loss(net(inputs), targets)
            loss.backward()
        optimizer.step(lambda loss=loss: loss)


def nested_and_clipped(run: Run) -> None:
    """Gradients that come in nested graphs are averages once backward returns, with a weight that nothing uses."""
    model, optimizer, net = run.begin(Nested(), static_graph=True)
    for step in range(STEPS):
        inputs, targets = run.batch(step)
        optimizer.zero_grad()
        functional.mse_loss(net(inputs), targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        optimizer.step()


def overwritten(run: Run) -> None:
    """A conversion puts new parameters into the modules and registers none, so that no hook of torch tells of them."""
    model, optimizer, net = run.begin(network())
    for step in range(STEPS):
        if step == STEPS // 2:
            torch.__future__.set_overwrite_module_params_on_conversion(True)
            try:
                model.double().float()
            finally:
                torch.__future__.set_overwrite_module_params_on_conversion(False)
            net, optimizer = _made_anew(run, model)
        optimizer.zero_grad()
        inputs, targets = run.batch(step)
        functional.mse_loss(net(inputs), targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        optimizer.step()


def loss_left_out(run: Run) -> None:
    """The optimizer holds the weights of a metric-learning loss, which no attached model has."""
    model, loss = network(), Proxies()
    optimizer = torch.optim.SGD([*model.parameters(), *loss.parameters()], RATE)
    net = run.wrap(model, optimizer)
    loss(net(run.batch(0)[0]), torch.arange(8) % 5).backward()
    optimizer.step()


def two_models_on_one_group(run: Run) -> None:
    """Two networks are attached to the group that the script has, and one pass goes through both.

    The second begins while gradients of the first are missing, so that nothing has been sent when it is refused.
    """
    first, second = network(24, 24), network()
    optimizers = [torch.optim.SGD(part.parameters(), RATE) for part in (first, second)]
    assert run.options is not None
    for part, optimizer in zip((first, second), optimizers, strict=True):
        run.syncs[str(len(run.syncs))] = ssfx.attach(part, optimizer, process_group=run.group, **run.options)
    second[2](first(second[:2](run.batch(0)[0]))).sum().backward()


def two_models_with_one_weight(run: Run) -> None:
    """An actor and a critic with one trunk are attached each."""
    actor, critic = network(), network()
    critic[0] = actor[0]
    assert run.options is not None
    for part in (actor, critic):
        optimizer = torch.optim.SGD(part.parameters(), RATE)
        run.syncs[str(len(run.syncs))] = ssfx.attach(part, optimizer, process_group=run.group, **run.options)


def nested_out_of_sight(run: Run) -> None:
    """Gradients come in nested graphs, and the attached model itself is not called."""
    model, optimizer, _ = run.begin(Nested())
    model.forward(run.batch(0)[0]).sum().backward()
    optimizer.step()


class Again(torch.autograd.Function):
    """Runs a layer again in backward, whose weights are among its inputs, and calls backward() there."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, layer: nn.Module, *_: torch.Tensor) -> torch.Tensor:
        ctx.layer = layer
        ctx.save_for_backward(x)
        return layer(x).detach()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            again = ctx.layer(x)
        again.backward(*grads)
        return x.grad, None, *map(torch.zeros_like, ctx.layer.parameters())


def backward_in_a_function(run: Run) -> None:
    """A layer that is no module's checkpoint gets its gradients in a nested graph, and once more in the outer one."""
    model, _, _ = run.begin(network())
    hidden = model[:2](run.batch(0)[0])
    Again.apply(hidden, model[2], *model[2].parameters()).sum().backward()


def a_weight_on_one_rank(run: Run) -> None:
    """A weight comes to the model of one rank alone."""
    model, _, net = run.begin(network())
    if run.rank == 1:
        model[2].extra = nn.Parameter(torch.zeros(3))
    functional.mse_loss(net(run.batch(0)[0]), run.batch(0)[1]).backward()


def an_optimizer_left_out(run: Run) -> None:
    """Only one of two optimizers is given."""
    model = Halves()
    run.wrap(model, torch.optim.SGD(model.a.parameters(), RATE))


FOLLOWS = {
    "tied": tied_to_what_is_exchanged,
    "hooks": hooks_after_the_exchange,
    "shapes": other_shapes,
    "data": data_of_other_shapes,
    "closure": loss_by_closure,
    "nested": nested_and_clipped,
    "overwritten": overwritten,
}
REFUSED: dict[str, tuple[Callable[[Run], None], tuple[str, ...]]] = {
    "shared weight": (two_models_with_one_weight, ("0.weight", "another model", "ModuleList")),
    "lost on one rank": (a_weight_on_one_rank, ("2.extra", "rank 0", "every rank")),
    "loss left out": (loss_left_out, ("shape (5, 4)", "ModuleList")),
    "one group": (two_models_on_one_group, ("one process group", "without process_group")),
    "nested unseen": (nested_out_of_sight, ("nested", "attached model itself", "sync.synchronize()")),
    "backward inside": (backward_in_a_function, ("two gradients", "use_reentrant=False", "autograd.Function")),
    "optimizer left out": (an_optimizer_left_out, ("does not hold", "b.0.weight", "as a list")),
}


def said(group: Any, rank: int, world: int, name: str, options: Options) -> str:
    """Return the error that a script ends with."""
    run = Run(group, rank, world, options)
    try:
        REFUSED[name][0](run)
    except ConfigError as error:
        return str(error)
    finally:
        run.detach()
    return ""


def follows(group: Any, rank: int, world: int, name: str, options: Options) -> tuple[float, bool]:
    """Return how far from torch DDP a script ends, and whether ranks agree."""
    ends = []
    for one in (None, options):
        run = Run(group, rank, world, one)
        FOLLOWS[name](run)
        ends.append(run.weights())
    run.detach()
    return float((ends[0] - ends[1]).abs().max()), run.ranks_agree()
