"""What the pool's ranks run for bugs that were found and are not fixed yet."""

from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist
from runtime.models import build, loss_of
from runtime.work import costs_for, given_times, train
from runtime.work_attach import DGC, SPARSE, _step, attach_mlp, distance, same_on_all_ranks, sgd
from runtime.work_guards import error_of
from torch import nn
from torch.utils.checkpoint import checkpoint

import ssfx
from ssfx.core.errors import ConfigError, RunError

Options = dict[str, Any]


def disabled_scaler(group: Any, rank: int, world: int) -> bool:
    """A disabled GradScaler passed to attach; one bad step. Return whether the weights stay finite."""
    model = build("mlp")
    optimizer = sgd(model.parameters())
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    sync = ssfx.attach(model, optimizer, process_group=group, scaler=scaler, **SPARSE)
    for step in range(3):
        optimizer.zero_grad()
        loss = loss_of(model, rank, step) * (float("inf") if step == 1 and rank == 0 else 1.0)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    sync.detach()
    return all(bool(torch.isfinite(p).all()) for p in model.parameters())


def after_a_failed_backward(group: Any, rank: int, world: int) -> str:
    """A backward fails on all ranks after some gradients and is caught; return what the next backward says."""

    def fail(gradient: torch.Tensor) -> None:
        raise ValueError("broken")

    model, optimizer, sync = attach_mlp(group, 0.0, scheme="wfbp")
    train(model, optimizer, rank, range(2))
    handle = model.first.weight.register_hook(fail)
    with suppress(ValueError):
        loss_of(model, rank, 77).backward()
    handle.remove()
    text = error_of(lambda: loss_of(model, rank, 3).backward(), RunError)
    sync.detach()
    return text


class Checkpointed(nn.Module):
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(self.inner.middle(torch.tanh(self.inner.first(x))))
        return checkpoint(lambda v: self.inner.last(self.inner.norm(v)) * self.inner.gain, y, use_reentrant=True)


def reentrant_checkpoint(group: Any, rank: int, world: int, options: Options) -> tuple[int, float]:
    """Train with reentrant checkpointing; return the exchanges in 4 steps and the distance from training without."""
    ends, steps = [], 0
    for wrap in (True, False):
        inner = build("mlp")
        model = Checkpointed(inner) if wrap else inner
        optimizer = sgd(model.parameters())
        sync = ssfx.attach(model, optimizer, process_group=group, **options)
        train(model, optimizer, rank, range(4))
        if wrap:
            steps = sync.step
        sync.detach()
        ends.append(inner)
    return steps, distance(*ends)


def closure(group: Any, rank: int, world: int) -> int:
    """Optimizer steps with a closure; return how many exchanges 3 of them took."""
    model, optimizer, sync = attach_mlp(group, **SPARSE)

    for step in range(3):

        def evaluate(step: int = step) -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, rank, step)
            loss.backward()
            return loss

        optimizer.step(evaluate)
    sync.detach()
    return sync.step


def differing_option(group: Any, rank: int, world: int, options: list[Options]) -> str:
    """Attach with another set of options per rank; return the refusal."""
    model = build("mlp")

    def attach() -> None:
        ssfx.attach(model, sgd(model.parameters(), 0.0), process_group=group, **options[rank]).detach()

    return error_of(attach)


def loads(group: Any, rank: int, world: int, saved: Options, loaded: Options) -> str:
    """Load the state of a run with other options; return the refusal."""
    states = []
    for options in (saved, loaded):
        model, optimizer, sync = attach_mlp(group, 0.0, **{"costs": costs_for(world), **options})
        train(model, optimizer, rank, range(2))
        states.append(sync.state_dict())
        if options is loaded:
            text = error_of(lambda sync=sync: sync.load_state_dict(states[0]))
        sync.detach()
    return text


def early_state(group: Any, rank: int, world: int) -> str:
    """Load a state saved while profiling into a run that has its plan; return the scheme that is used in the end."""
    model, optimizer, sync = attach_mlp(group, 0.0, costs=costs_for(world), **DGC)
    _step(model, optimizer, rank, 0, "mlp", "")
    state = sync.state_dict()
    train(model, optimizer, rank, range(1, 8))
    sync.load_state_dict(state)
    train(model, optimizer, rank, range(1, 8))
    sync.detach()
    return sync.plan.scheme


def attached_twice(group: Any, rank: int, world: int) -> str:
    model = build("mlp")
    sync = ssfx.attach(model, sgd(model.parameters()), process_group=group)

    def attach() -> None:
        ssfx.attach(model, sgd(model.parameters()), process_group=group).detach()

    text = error_of(attach)
    sync.detach()
    return text


class Summed(torch.autograd.Function):
    """Sums its gradient over ranks in backward, as SyncBatchNorm does, on the same group."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        ctx.group = group
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


def train_during_all_reduce(models: Any, optimizers: Any, group: Any, rank: int, world: int, width: int) -> None:
    """Train the attached first model and a twin averaged by hand, both with a collective per layer in backward."""
    for step in range(20):
        x = torch.randn(4, width, generator=torch.Generator().manual_seed(100 * rank + step))
        for index, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            optimizer.zero_grad()
            y = x
            for layer in model:
                y = Summed.apply(torch.tanh(layer(y)), group)
            (y.square().mean() * 1e-4).backward()
            if index == 1:
                for p in model.parameters():
                    dist.all_reduce(p.grad, group=group)
                    p.grad /= world
            optimizer.step()


def collective_in_backward(group: Any, rank: int, world: int, options: Options) -> float:
    """Layers with collectives of their own in backward; return the distance from the run with DDP."""
    torch.manual_seed(0)
    models = [nn.ModuleList(nn.Linear(16, 16) for _ in range(12)) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [sgd(m.parameters()) for m in models]
    sync = ssfx.attach(models[0], optimizers[0], costs=costs_for(world), **options)
    train_during_all_reduce(models, optimizers, group, rank, world, 16)
    sync.detach()
    return distance(*models)


def unfrozen_later(group: Any, rank: int, world: int) -> bool:
    """A parameter that is frozen at attach and trained later; return whether replicas stay equal or it was refused."""
    model = build("mlp")
    model.middle.weight.requires_grad_(False)
    optimizer = sgd(model.parameters(), 0.0)
    sync = ssfx.attach(model, optimizer, process_group=group)
    _step(model, optimizer, rank, 0, "mlp", "")
    model.middle.weight.requires_grad_(True)
    try:
        _step(model, optimizer, rank, 1, "mlp", "")
    except ConfigError:
        return True
    finally:
        sync.detach()
    return same_on_all_ranks(group, model)


def host_placed(group: Any, rank: int, world: int) -> float:
    """As collective_in_backward, with every other segment compressed on the host: its thread issues the lane."""
    from ssfx.planning.plan import Bucket, Lane, Plan, Segment, launch_in_order

    torch.manual_seed(0)
    models = [nn.ModuleList(nn.Linear(64, 64) for _ in range(12)) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [sgd(m.parameters()) for m in models]
    sync = ssfx.attach(models[0], optimizers[0], scheme="per_tensor", compressor="topk", density=0.9)
    sync._planner._stop_observing()
    specs = sync.plan.tensors
    buckets = tuple(
        Bucket((Lane("all_gather", (Segment((s.name,), "topk", 0.9999, placement=("host", "device")[i % 2]),)),))
        for i, s in enumerate(specs)
    )
    sync._install(Plan("per_tensor", world, specs, buckets, launch_in_order(buckets, specs)))
    train_during_all_reduce(models, optimizers, group, rank, world, 64)
    sync.detach()
    return distance(*models)


@given_times()
def default_dtype(group: Any, rank: int, world: int, options: Options, dtype: str) -> bool:
    """Return whether training under another default dtype of torch ends in the same bits as under float32."""
    ends = []
    for default in (torch.float32, getattr(torch, dtype)):
        model = build("mlp")
        optimizer = sgd(model.parameters())
        torch.manual_seed(rank)
        batches = [(torch.randn(8, 20), torch.randint(5, (8,))) for _ in range(8)]
        torch.set_default_dtype(default)
        try:
            sync = ssfx.attach(model, optimizer, process_group=group, **{"costs": costs_for(world), **options})
            for inputs, targets in batches:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(inputs), targets).backward()
                optimizer.step()
            sync.detach()
        finally:
            torch.set_default_dtype(torch.float32)
        ends.append(torch.cat([p.detach().reshape(-1) for p in model.parameters()]))
    return torch.equal(*ends)
