"""What the pool's ranks run for the promises of `ssfx.attach`: mostly a run with ssfx beside one with torch DDP."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from runtime.models import build, loss_of
from runtime.work import train
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ssfx
from ssfx.core.errors import ConfigError

Options = dict[str, Any]
SPARSE: Options = {"scheme": "per_tensor", "compressor": "topk", "density": 0.05}
DGC: Options = {"scheme": "ssfusion_oi", "rule": "paper", "compressor": "topk", "density": 0.05, "memory": "dgc"}
STEPS = 4


def sgd(params: Any, momentum: float = 0.9) -> torch.optim.SGD:
    return torch.optim.SGD(params, lr=0.1, momentum=momentum)


def attach_mlp(group: Any, momentum: float = 0.9, **options: Any) -> tuple[Any, torch.optim.SGD, Any]:
    """Return a model, an optimizer and the exchange between them."""
    model = build("mlp")
    optimizer = sgd(model.parameters(), momentum)
    return model, optimizer, ssfx.attach(model, optimizer, process_group=group, **options)


def same_on_all_ranks(group: Any, model: nn.Module) -> bool:
    same = True
    for p in model.parameters():
        first = p.detach().clone()
        dist.broadcast(first, 0, group=group)
        same &= torch.equal(first, p)
    return same


def distance(a: nn.Module, b: nn.Module) -> float:
    return max(float((x - y).detach().abs().max()) for x, y in zip(a.parameters(), b.parameters(), strict=True))


class Conv(nn.Module):
    """A small convolutional net whose weights and activations are channels_last."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 5)
        self.register_buffer("mask", torch.tensor([True, False, True, True, True]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm(self.conv(x))).mean((2, 3))
        return self.head(y) * self.mask


def _twins(group: Any, options: Options, kind: str = "mlp", optimizer: Callable[[Any], Any] = sgd) -> tuple[Any, ...]:
    model, twin = build(kind), build(kind)
    mine, theirs = optimizer(model.parameters()), optimizer(twin.parameters())
    sync = ssfx.attach(model, mine, process_group=group, **options)
    return model, mine, sync, DistributedDataParallel(twin, process_group=group), theirs


def _step(model: Any, optimizer: Any, rank: int, step: int, kind: str, habit: str) -> None:
    if habit == "set_to_none=False":
        optimizer.zero_grad(set_to_none=False)
    elif habit != "never zeroed":
        optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=habit == "autocast"):
        loss = loss_of(model, rank, step, kind)
    loss.backward()
    if habit == "clip":
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()


def next_to_ddp(group: Any, rank: int, world: int, habit: str, kind: str, options: Options) -> tuple[float, float]:
    """Train in a `habit` with ssfx and with DDP; return the largest differences of gradients and of parameters."""
    optimizers: dict[str, Callable[[Any], Any]] = {
        "adam": lambda params: torch.optim.AdamW(params, lr=1e-2),
        "groups": lambda params: torch.optim.SGD(
            [{"params": (every := list(params))[:3], "lr": 0.01}, {"params": every[3:], "weight_decay": 0.1}], lr=0.1
        ),
    }
    model, mine, sync, ddp, theirs = _twins(group, options, kind, optimizers.get(habit, sgd))
    worst = 0.0
    for step in range(STEPS):
        _step(model, mine, rank, step, kind, habit)
        _step(ddp, theirs, rank, step, kind, habit)
        for p, q in zip(model.parameters(), ddp.module.parameters(), strict=True):
            assert (p.grad is None) == (q.grad is None)
            if p.grad is not None:
                worst = max(worst, float((p.grad - q.grad).abs().max() / (1e-12 + q.grad.abs().max())))
    sync.detach()
    return worst, distance(model, ddp.module)


class _WithEmpty(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)
        self.z = nn.Parameter(torch.zeros(0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).sum() + self.z.sum()


class _Wrapped:
    """Holds an optimizer as accelerate's and Lightning's wrappers do."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    def step(self) -> None:
        self.optimizer.step()


def handle_text(group: Any, rank: int, world: int, options: Options, steps: int) -> str:
    """Return what a handle's repr says after some steps."""
    model, optimizer, sync = attach_mlp(group, **options)
    train(model, optimizer, rank, range(steps))
    text = repr(sync)
    sync.detach()
    return text


def exempt(group: Any, rank: int, world: int, options: Options) -> tuple[set[str], set[str], str]:
    """Return parameters whose averages differ from DDP's at once, those compressed after 6 steps, a refused state."""
    model, mine, sync, twin, _ = _twins(group, options)
    for one in (model, twin):
        loss_of(one, rank, 0, "mlp").backward()
    named = zip(model.named_parameters(), twin.module.parameters(), strict=True)
    differ = {name for (name, a), b in named if not torch.equal(a.grad, b.grad)}
    train(model, mine, rank, range(6))
    segments = [segment for _, lane in sync.plan.lanes() for segment in lane.segments]
    compressed = {name for segment in segments if not segment.dense for name in segment.tensors}
    text = ""
    try:
        sync.load_state_dict(sync.state_dict() | {"options": "[]"})
    except ConfigError as error:
        text = str(error)
    sync.detach()
    return differ, compressed, text
