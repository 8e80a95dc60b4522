"""What the pool's ranks run to try reducers on odd models, in odd groups and several at once."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from runtime.models import build, loss_of, parameters
from runtime.ranks import add_up, is_rank_0s
from runtime.work import train
from runtime.work_reduced import Options, attach
from torch import nn


class Odd(nn.Module):
    """Parameters that are empty, tied, frozen, scalar, unused on all ranks or on some, and of several dtypes."""

    def __init__(self, dtypes: list[torch.dtype]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(nn.Linear(12, 12).to(dtype) for dtype in dtypes)
        self.tied = nn.Linear(12, 12).to(dtypes[0])
        self.tied.weight = self.blocks[0].weight
        self.frozen = nn.Parameter(torch.ones(12, dtype=dtypes[-1]), requires_grad=False)
        self.empty = nn.ParameterList(torch.zeros(0, 3, dtype=dtype) for dtype in (torch.float32, torch.float16))
        self.gain = nn.Parameter(torch.tensor(1.0))
        self.unused = nn.Parameter(torch.ones(9, dtype=dtypes[-1]))
        self.sometimes = nn.Parameter(torch.ones(12, dtype=dtypes[0]))

    def forward(self, x: torch.Tensor, often: bool) -> torch.Tensor:
        for block in [*self.blocks, self.tied]:
            x = torch.tanh(block(x.to(block.weight.dtype)))
        x = x * self.frozen + sum(empty.sum() for empty in self.empty)
        return (x * self.sometimes if often else x).float() * self.gain


class Few(nn.Module):
    """Parameters of the sizes given, with constant gradients that differ between ranks and steps."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__()
        self.parts = nn.ParameterList(torch.zeros(size) for size in sizes)

    def forward(self, seed: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        return sum((torch.randn(p.shape, generator=generator) * p).sum() for p in self.parts)


def conserves(
    model: nn.Module,
    twin: nn.Module,
    loss: Callable[[nn.Module, int], torch.Tensor],
    group: Any,
    rank: int,
    world: int,
    options: Options,
    steps: int,
) -> dict[str, Any]:
    """Train `model`; return how far what came in is from what was sent and kept, and whether replicas are equal."""
    optimizer, sync = attach(model, group, world, options)
    own = dict(twin.named_parameters())
    worst, same = 0.0, True
    for step in range(steps):
        with torch.no_grad():
            for name, p in model.named_parameters():
                own[name].copy_(p)
        twin.zero_grad()
        loss(twin, step).backward()
        before = sync.store.state_dict()
        optimizer.zero_grad()
        loss(model, step).backward()
        assert not sync.last.skipped
        optimizer.step()  # which commits what was kept back
        after = sync.store.state_dict()
        for name, p in model.named_parameters():
            if not p.requires_grad:
                continue
            zero = torch.zeros(p.shape)
            grad = zero if own[name].grad is None else own[name].grad.float()
            old, new = (state.get(name, {}).get("residual", zero) for state in (before, after))
            put_in, largest = grad + old - new, torch.stack([grad.abs(), old.abs(), new.abs()])
            add_up(put_in, group)
            add_up(largest, group)
            if p.numel():  # sums may be close to zero, so rounding errors are measured by what was added up
                average = zero if p.grad is None else p.grad.float()
                worst = max(worst, float((put_in - world * average).abs().max() / (largest.max() + 1e-30)))
        for p in model.parameters():
            same &= is_rank_0s(p, group)
    used = sorted({lane.collective for _, lane in sync.plan.lanes()})
    sync.detach()
    return {"worst": worst, "same": same, "used": used}


def odd(group: Any, rank: int, world: int, options: Options, dtypes: list[str]) -> dict[str, Any]:
    """Train `Odd`."""

    def loss(model: nn.Module, step: int) -> torch.Tensor:
        x = torch.randn(6, 12, generator=torch.Generator().manual_seed(100 * rank + step))
        return (model(x, often=rank == step % world) - 1).square().mean()

    made = [Odd([getattr(torch, dtype) for dtype in dtypes]) for _ in range(2)]
    return conserves(*made, loss, group, rank, world, options, 7)


def few(group: Any, rank: int, world: int, options: Options, sizes: list[int]) -> dict[str, Any]:
    """Train `Few`."""

    def loss(model: nn.Module, step: int) -> torch.Tensor:
        return model(100 * rank + step)

    return conserves(Few(sizes), Few(sizes), loss, group, rank, world, options, 7)


def two_models(group: Any, rank: int, world: int, options: list[Options], at_once: bool) -> list[str]:
    """Train two models, in one backward pass or one after the other; return what differs from training each alone."""
    alone, together = [build("mlp", seed) for seed in (1, 2)], [build("mlp", seed) for seed in (1, 2)]
    for model, given in zip(alone, options, strict=True):
        optimizer, sync = attach(model, group, world, given)
        train(model, optimizer, rank, range(7))
        sync.detach()
    pairs = [attach(model, None, world, given) for model, given in zip(together, options, strict=True)]
    for step in range(7):
        order = list(zip(together, pairs, strict=True))[:: 1 if step % 2 else -1]
        for _, (optimizer, _) in order:
            optimizer.zero_grad()
        losses = [loss_of(model, rank, step) for model, _ in order]
        if at_once:
            sum(losses).backward()  # type: ignore[union-attr]
        else:
            for loss in losses:
                loss.backward()
        for _, (optimizer, _) in order:
            optimizer.step()
    for _, sync in pairs:
        sync.detach()
    return [
        f"{i}: {n}"
        for i in (0, 1)
        for n, p in parameters(together[i]).items()
        if not torch.equal(p, parameters(alone[i])[n])
    ]


def part_of_the_world(group: Any, rank: int, world: int, options: Options) -> list[str]:
    """Exchange among ranks 1 and 2 of three; return what differs from the same run among ranks 0 and 1."""
    groups = [dist.new_group(ranks) for ranks in ([0, 1], [1, 2])]
    ends: dict[int, dict[str, torch.Tensor]] = {}
    for number, members in enumerate(([0, 1], [1, 2])):
        if rank not in members:
            continue
        model = build("mlp")
        optimizer, sync = attach(model, groups[number], 2, options)
        for step in range(7):
            optimizer.zero_grad()
            loss_of(model, members.index(rank), step).backward()
            optimizer.step()
        sync.detach()
        ends[number] = parameters(model)
    if rank != 1:
        return []
    return [n for n, p in ends[0].items() if not torch.equal(p, ends[1][n])]


def again(group: Any, rank: int, world: int, options: Options, others: Options) -> list[str]:
    """Attach, train, detach and attach by other options and back; return what differs from a run that starts there."""
    model = build("mlp")
    fresh = build("mlp")

    def go(one: torch.nn.Module, given: Options) -> None:
        optimizer, sync = attach(one, group, world, given)
        train(one, optimizer, rank, range(7))
        sync.detach()

    go(model, options)
    go(model, others)
    fresh.load_state_dict(model.state_dict())
    go(model, options)
    go(fresh, options)
    return [n for n, p in parameters(model).items() if not torch.equal(p, parameters(fresh)[n])]
