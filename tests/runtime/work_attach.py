"""What the pool's ranks run for the promises of `ssfx.attach`: mostly a run with ssfx beside one with torch DDP."""

import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from runtime.models import batch, build, loss_of
from runtime.work import costs_for, train
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


def channels_last(group: Any, rank: int, world: int, options: Options) -> tuple[float, bool]:
    """Return the distance from DDP for strided parameters, gradients and buffers, and whether strides were kept."""
    models = []
    for _ in range(2):
        torch.manual_seed(rank)  # attaching makes them equal, as DDP does
        models.append(Conv().to(memory_format=torch.channels_last))  # type: ignore[call-overload]
    model, twin = models
    mine, theirs = sgd(model.parameters()), sgd(twin.parameters())
    sync = ssfx.attach(model, mine, process_group=group, **options)
    ddp = DistributedDataParallel(twin, process_group=group)
    strides = []
    for step in range(STEPS):
        x = torch.randn(4, 3, 6, 6, generator=torch.Generator().manual_seed(10 * rank + step))
        x = x.to(memory_format=torch.channels_last)
        for net, optimizer in ((model, mine), (ddp, theirs)):
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
        strides.append(model.conv.weight.grad.stride() == model.conv.weight.stride())
    sync.detach()
    return distance(model, twin), all(strides)


def compiled(group: Any, rank: int, world: int, options: Options) -> tuple[float, list[str], list[str]]:
    """Train a compiled model beside an eager one; return their distance, and the names in both states."""
    eager, inner = build("mlp"), build("mlp")
    model = torch.compile(inner, backend="aot_eager")
    mine, theirs = sgd(model.parameters()), sgd(eager.parameters())
    given = {"costs": costs_for(world), **options}
    sync = ssfx.attach(model, mine, process_group=group, **given)
    twin = ssfx.attach(eager, theirs, process_group=group, **given)
    for step in range(STEPS):
        for net, optimizer in ((model, mine), (eager, theirs)):
            optimizer.zero_grad()
            loss_of(net, rank, step).backward()
            optimizer.step()
    names = [sorted(spec.name for spec in s.plan.tensors) for s in (sync, twin)]
    sync.detach()
    twin.detach()
    torch._dynamo.reset()
    return distance(inner, eager), names[0], names[1]


def bf16(group: Any, rank: int, world: int, options: Options) -> tuple[float, str, bool]:
    """Train in bfloat16; return the worst violation of mass conservation, the residual's dtype, and equal replicas."""
    model = build("mlp").to(torch.bfloat16)
    optimizer = sgd(model.parameters())
    sync = ssfx.attach(model, optimizer, process_group=group, **{"costs": costs_for(world), **options})
    worst, dtypes = 0.0, set()
    for step in range(8):
        local = build("mlp").to(torch.bfloat16)
        local.load_state_dict(model.state_dict())
        x, y = batch(rank, step)
        nn.functional.cross_entropy(local(x.bfloat16()), y).backward()
        before = sync.store.state_dict()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x.bfloat16()), y).backward()
        optimizer.step()  # which commits what was kept back
        after = sync.store.state_dict()
        dtypes |= {str(kept.dtype) for state in after.values() for kept in state.values() if kept.is_floating_point()}
        own = dict(local.named_parameters())
        for name, p in model.named_parameters():
            zero = torch.zeros(p.shape)
            old = before.get(name, {}).get("residual", zero)
            new = after.get(name, {}).get("residual", zero)
            mass = own[name].grad.float() + old - new
            dist.all_reduce(mass, group=group)
            worst = max(worst, float((mass - world * p.grad.float()).abs().max() / (mass.abs().max() + 1e-12)))
    same = same_on_all_ranks(group, model)
    sync.detach()
    return worst, ",".join(sorted(dtypes)), same


def float64(group: Any, rank: int, world: int) -> float:
    """Return the distance from DDP of a dense exchange in double precision."""
    model, twin = build("mlp").double(), build("mlp").double()
    mine, theirs = sgd(model.parameters()), sgd(twin.parameters())
    sync = ssfx.attach(model, mine, process_group=group)
    ddp = DistributedDataParallel(twin, process_group=group)
    for step in range(STEPS):
        x, y = batch(rank, step)
        for net, optimizer in ((model, mine), (ddp, theirs)):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x.double()), y).backward()
            optimizer.step()
    sync.detach()
    return distance(model, twin)


def frozen_after_attach(group: Any, rank: int, world: int, options: Options) -> dict[str, bool]:
    model, optimizer, sync = attach_mlp(group, **options)
    train(model, optimizer, rank, range(2))
    optimizer.zero_grad()
    model.middle.weight.requires_grad_(False)
    weight = model.middle.weight.detach().clone()
    train(model, optimizer, rank, range(2, 5))
    report = {
        "kept": torch.equal(weight, model.middle.weight),
        "without_grad": model.middle.weight.grad is None,
        "same": same_on_all_ranks(group, model),
        "goes_on": sync.step == 5 and sync.skipped_steps == 0,
    }
    sync.detach()
    return report


def nested_no_sync(group: Any, rank: int, world: int) -> list[int]:
    """Return the number of exchanges after backward passes inside, between and after nested no_sync blocks."""
    model = build("mlp")
    sync = ssfx.attach(model, sgd(model.parameters()), process_group=group)
    seen = []
    with sync.no_sync():
        with sync.no_sync():
            loss_of(model, rank, 0).backward()
        seen.append(sync.step)
        loss_of(model, rank, 1).backward()
        seen.append(sync.step)
    loss_of(model, rank, 2).backward()
    seen.append(sync.step)
    sync.detach()
    return seen


def detaches(group: Any, rank: int, world: int, options: Options) -> dict[str, bool]:
    model = build("mlp")
    optimizer = sgd(model.parameters())

    def hooks() -> int:
        count = len(model._forward_hooks) + len(model._forward_pre_hooks)
        count += len(optimizer._optimizer_step_pre_hooks) + len(optimizer._optimizer_step_post_hooks)
        return count + sum(len(p._post_accumulate_grad_hooks or ()) for p in model.parameters())

    threads = set(threading.enumerate())
    report = {}
    for turn in ("first", "second"):
        sync = ssfx.attach(model, optimizer, process_group=group, **{"costs": costs_for(world), **options})
        train(model, optimizer, rank, range(7))
        report[f"{turn} replicas equal"] = same_on_all_ranks(group, model)
        sync.detach()
        sync.detach()
        report[f"{turn} no hooks"] = hooks() == 0
        report[f"{turn} no threads"] = set(threading.enumerate()) <= threads
    local = build("mlp")
    local.load_state_dict(model.state_dict())
    loss_of(local, rank, 9).backward()
    optimizer.zero_grad()
    loss_of(model, rank, 9).backward()
    pairs = zip(model.parameters(), local.parameters(), strict=True)
    report["local gradients"] = all(torch.equal(p.grad, q.grad) for p, q in pairs)
    return report


def scaler_with_clipping(group: Any, rank: int, world: int, options: Options) -> float:
    """Return how far a scaled run with clipping is from the unscaled one."""
    ends = []
    for enabled in (True, False):
        model = build("mlp")
        optimizer = sgd(model.parameters())
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2, enabled=enabled)
        sync = ssfx.attach(model, optimizer, process_group=group, scaler=scaler, **options)
        for step in range(STEPS):
            optimizer.zero_grad()
            scaler.scale(loss_of(model, rank, step)).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            scaler.step(optimizer)
            scaler.update()
        sync.detach()
        ends.append(model)
    return distance(*ends)


class _WithEmpty(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)
        self.z = nn.Parameter(torch.zeros(0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).sum() + self.z.sum()


def empty_parameter(group: Any, rank: int, world: int, scheme: str) -> bool:
    """Train a model whose last parameter has no elements; return whether the ranks stay equal."""
    model = _WithEmpty()
    optimizer = sgd(model.parameters())
    sync = ssfx.attach(model, optimizer, process_group=group, scheme=scheme, compressor="topk", density=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        model(torch.randn(4, 64, generator=torch.Generator().manual_seed(10 * rank + step))).backward()
        optimizer.step()
    sync.detach()
    return same_on_all_ranks(group, model)


def two_optimizers(group: Any, rank: int, world: int) -> tuple[int, float, float]:
    """Train with two optimizers for one model; return the exchanges made and the largest differences from DDP."""
    model, twin = build("mlp"), build("mlp")
    mine = [sgd(list(model.parameters())[:2]), sgd(list(model.parameters())[2:])]
    theirs = sgd(twin.parameters())
    sync = ssfx.attach(model, mine, process_group=group)
    ddp = DistributedDataParallel(twin, process_group=group)
    worst = 0.0
    for step in range(STEPS):
        for net, optimizers in ((model, mine), (ddp, [theirs])):
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss_of(net, rank, step, "mlp").backward()
            for optimizer in optimizers:
                optimizer.step()
        pairs = zip(model.parameters(), twin.parameters(), strict=True)
        worst = max(worst, *(float((p.grad - q.grad).abs().max()) for p, q in pairs))
    exchanged = sync.step
    sync.detach()
    return exchanged, worst, distance(model, twin)


class _Wrapped:
    """Holds an optimizer as accelerate's and Lightning's wrappers do."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    def step(self) -> None:
        self.optimizer.step()


def wrapped_optimizer(group: Any, rank: int, world: int) -> tuple[int, bool]:
    """Train through a wrapped optimizer; return the steps exchanged and whether the ranks stay equal."""
    model = build("mlp")
    optimizer = sgd(model.parameters())
    wrapped = _Wrapped(optimizer)
    sync = ssfx.attach(model, wrapped, process_group=group, **SPARSE)  # type: ignore[arg-type]
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, rank, step, "mlp").backward()
        wrapped.step()
    steps = sync.step
    sync.detach()
    return steps, same_on_all_ranks(group, model)


def comm_after_detach(group: Any, rank: int, world: int) -> float:
    """Go on with the Comm of an exchange that has ended, whose ranks left word that they take part in no other."""
    model = build("mlp")
    sync = ssfx.attach(model, sgd(model.parameters()), process_group=group, **SPARSE)
    loss_of(model, rank, 0, "mlp").backward()
    sync.detach()
    sync.comm.look()  # a rank that waits for a second calls it
    return float(sync.comm.all_reduce(torch.ones(1, dtype=torch.float32)).wait())


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
