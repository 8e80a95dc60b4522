"""Buffers, graphs of gradients, join, steps without a backward pass, dtypes of gradients: as with torch DDP."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from runtime.pool import Pool
from runtime.ranks import among, each_rank, is_rank_0s
from runtime.work_guards import error_of
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ssfx

SCHEMES: list[dict[str, Any]] = [
    {"scheme": "ddp"},
    {"scheme": "topk", "density": 1.0},
    {"scheme": "topk", "density": 0.3},
]


@pytest.mark.parametrize("broadcast", [True, False])
def test_running_statistics_are_those_of_ddp(pool: Pool, broadcast: bool) -> None:
    reports = pool.run(running_statistics, 2, broadcast)
    assert all(as_ddp for as_ddp, _ in reports)
    assert reports[1][1] == broadcast


@pytest.mark.parametrize("options", SCHEMES[:2], ids=["ddp", "topk"])
@pytest.mark.filterwarnings("ignore:Using backward")
@each_rank(2)
def test_a_graph_of_gradients_is_averaged_too(group, rank, world, options):
    model = nn.Linear(6, 3, bias=False)
    nn.init.ones_(model.weight)
    sync = ssfx.attach(model, torch.optim.SGD(model.parameters(), 0.1), process_group=group, **options)
    ((model.weight * (rank + 1)) ** 2).sum().backward(create_graph=True)
    grad = model.weight.grad
    assert grad is not None
    right = sum(2 * (r + 1) ** 2 for r in range(world)) / world
    error = float((grad.detach() - right).abs().max())
    model.weight.grad = None
    sync.detach()
    assert error < 1e-6


@pytest.mark.parametrize("options", [*SCHEMES, {"scheme": "per_tensor", "density": 0.1}], ids=str)
@pytest.mark.filterwarnings("ignore:Using backward")
@each_rank(2, by="ranks")
def test_an_averaged_gradient_is_stepped_with_and_not_differentiated(group, rank, world, options):
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1))
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)
    sync = ssfx.attach(model, optimizer, **among(group), **options)
    for step in range(3):
        optimizer.zero_grad(set_to_none=step == 1)
        model(_batch(rank, step)).square().mean().backward(create_graph=True)
        grads = [p.grad for p in model.parameters()]
        assert all(grad is not None and grad.requires_grad for grad in grads)
        for differentiated in (
            lambda grads=grads: torch.autograd.grad(grads, [*model.parameters()], [torch.ones_like(g) for g in grads]),
            lambda grads=grads: sum(grad.square().sum() for grad in grads).backward(),
        ):
            text = error_of(differentiated)
            assert "averaged over ranks cannot be differentiated" in text
            assert "\n" not in text
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        assert is_rank_0s(model[0].weight, group)
    with sync.no_sync():  # this rank's own gradient, and its own graph
        model.zero_grad()
        model(_batch(rank, 0)).square().mean().backward(create_graph=True)
    first = model[0].weight.grad
    assert torch.autograd.grad(first.sum(), model[0].weight)[0].any()
    sync.detach()


@pytest.mark.parametrize(("initial", "moves"), [(True, [1.0, 1 / 3, 1 / 3]), (False, [1.0, 1.0, 1.0])])
def test_join_divides_by_all_ranks_or_by_those_that_train(pool: Pool, initial: bool, moves: list[float]) -> None:
    assert pool.run(divided_by_active, 3, initial)[0] == pytest.approx(moves)


@each_rank(2)
def test_an_argument_that_join_does_not_have_is_named(group, rank, world):
    model = nn.Linear(1, 1)
    sync = ssfx.attach(model, torch.optim.SGD(model.parameters(), 1.0), process_group=group)
    text = error_of(lambda: sync.join_hook(average="active"))
    sync.detach()
    assert "average" in text
    assert "divide_by_initial_world_size" in text


@pytest.mark.parametrize("options", SCHEMES, ids=["ddp", "topk 1", "topk 0.3"])
@each_rank(2)
def test_a_step_without_a_backward_pass_on_any_rank_moves_nothing(group, rank, world, options):
    """A step before any backward pass, then one that a rank skips, then one that all skip."""
    torch.manual_seed(0)
    model = nn.Linear(6, 3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
    sync = ssfx.attach(model, optimizer, process_group=group, **options)
    still = True
    for step, trains in enumerate((False, True, rank == 0, False, True)):
        optimizer.zero_grad()
        before = model.weight.detach().clone()
        if trains:
            model(_batch(rank, step)).square().mean().backward()
        optimizer.step()
        if step in (0, 3):
            still = still and torch.equal(before, model.weight)
    mine = model.weight.detach().clone()
    dist.broadcast(mine, dist.get_global_rank(group, 0), group=group)
    steps = sync.step
    sync.detach()
    assert still
    assert torch.equal(mine, model.weight.detach())
    assert steps == 3


@pytest.mark.parametrize(
    ("case", "dtype", "error"),
    [
        pytest.param("grad_dtype", "torch.float32", 1e-6, marks=pytest.mark.skipif(
            not hasattr(torch.Tensor, "grad_dtype"), reason="this torch has no grad_dtype")),
        ("double", "torch.float64", 1e-15),
    ],
)  # fmt: skip
@each_rank(2)
def test_gradients_are_averaged_in_their_own_dtype(group, rank, world, case, dtype, error):
    """Gradients are of another dtype than the weights were at attach."""
    model = nn.Linear(16, 16, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    if case == "double":
        sync = ssfx.attach(model, optimizer, process_group=group)
        model.double()
        wide = torch.float64
    else:
        model.bfloat16()
        model.weight.grad_dtype = torch.float32  # type: ignore[attr-defined]
        sync = ssfx.attach(model, optimizer, process_group=group)
        wide = torch.float32
    values = [torch.randn(16, 16, generator=torch.Generator().manual_seed(r), dtype=wide) for r in range(world)]
    _Scaled.apply(model.weight, values[rank]).backward()
    right = torch.stack(values).double().mean(0)
    grad = model.weight.grad
    assert grad is not None
    found = float((grad.double() - right).abs().max() / right.abs().max())
    sync.detach()
    assert str(grad.dtype) == dtype
    assert found < error


@pytest.mark.parametrize(
    ("options", "differs"),
    [
        ({"scheme": "ddp"}, False),
        ({"scheme": "per_tensor", "compressor": "topk", "density": 1.0}, False),
        ({"scheme": "ddp_bf16"}, True),
        ({"scheme": "per_tensor", "compressor": "topk", "density": 0.1, "memory": "momentum"}, True),
        ({"scheme": "ddp_quantized", "compressor": "qsgd(bits=4,bucket=48,norm=max)"}, True),
        ({"scheme": "powersgd", "compressor": "powersgd(rank=4)"}, True),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else "",
)
@each_rank(2)
def test_an_optimizer_that_orthogonalises_gets_the_same_averages(group, rank, world, options, differs):
    """Muon for matrices, AdamW for the rest: DDP's weights bit for bit where everything is sent."""

    def start() -> tuple[nn.Module, list[torch.optim.Optimizer]]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(11, 24), nn.Linear(24, 40), nn.Tanh(), nn.Linear(40, 24), nn.LayerNorm(24))
        matrices = [model[1].weight, model[3].weight]
        rest = [p for p in model.parameters() if all(p is not one for one in matrices)]
        return model, [torch.optim.Muon(matrices, lr=0.02), torch.optim.AdamW(rest, lr=0.01)]

    def step(net: Any, optimizers: list[torch.optim.Optimizer], number: int) -> None:
        words = torch.randint(0, 11, (8, 5), generator=torch.Generator().manual_seed(100 * rank + number))
        for optimizer in optimizers:
            optimizer.zero_grad()
        (net(words) - words[..., None] / 11).square().mean().backward()

    (model, optimizers), (twin, theirs), (replay, replayed) = start(), start(), start()
    sync = ssfx.attach(model, optimizers, process_group=group, **options)
    ddp, exact = DistributedDataParallel(twin, process_group=group), True
    for number in range(6):
        step(ddp, theirs, number)
        step(model, optimizers, number)
        for p, q in zip(model.parameters(), replay.parameters(), strict=True):
            assert p.grad is not None
            q.grad = p.grad.clone()
        for optimizer in (*theirs, *optimizers, *replayed):
            optimizer.step()
        exact &= all(torch.equal(p, q) for p, q in zip(model.parameters(), replay.parameters(), strict=True))
    sync.detach()
    far = max(float((p - q).detach().abs().max()) for p, q in zip(model.parameters(), twin.parameters(), strict=True))
    flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    first = flat.clone()
    dist.broadcast(first, dist.get_global_rank(group, 0), group=group)
    assert (far > 0) == differs
    assert exact
    assert torch.equal(flat, first)


# ---- on each rank ---------------------------------------------------------------------------------------------------


def _batch(rank: int, step: int) -> torch.Tensor:
    return torch.randn(8, 6, generator=torch.Generator().manual_seed(100 * rank + step)) + rank


def running_statistics(group: Any, rank: int, world: int, broadcast: bool) -> tuple[bool, bool]:
    """Return whether rank 0's buffers equal DDP's after four steps, or all ranks' do, and whether ranks agree."""
    ends = []
    for exchange in ("ssfx", "ddp"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))
        model.register_buffer("table", torch.arange(1 << 15))  # a large one that never changes is not sent
        model.register_buffer("history", torch.zeros(1 << 15))
        model.register_buffer("codebook", torch.ones(1 << 15))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        if exchange == "ssfx":
            net: Any = model
            sync = ssfx.attach(model, optimizer, process_group=group, broadcast_buffers=broadcast)
        else:
            net = DistributedDataParallel(model, process_group=group)
        for step in range(4):
            optimizer.zero_grad()
            net(_batch(rank, step)).square().mean().backward()
            optimizer.step()
            if step == 1:
                model.history.add_(rank + 1)
            if step == 2:
                model.codebook.data.mul_(0.9).add_(rank + 1)  # which leaves no version
        if exchange == "ssfx":
            sync.detach()
        else:  # DDP sends rank 0's when the next forward pass begins
            for buffer in model.buffers() if broadcast else ():
                dist.broadcast(buffer, dist.get_global_rank(group, 0), group=group)
        ends.append(torch.cat([b.reshape(-1).double() for b in model.buffers()]))
    first = ends[0].clone()
    dist.broadcast(first, dist.get_global_rank(group, 0), group=group)
    return torch.equal(*ends) or (rank > 0 and not broadcast), torch.equal(ends[0], first)


def divided_by_active(group: Any, rank: int, world: int, initial: bool) -> list[float]:
    """Rank 0 has three batches and the others one; every gradient is 1. Return how far each step moved the weight."""
    model = nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    sync = ssfx.attach(model, optimizer, process_group=group)
    moves = []
    with sync.join(divide_by_initial_world_size=initial):
        for _ in range(3 if rank == 0 else 1):
            optimizer.zero_grad()
            before = model.weight.item()
            model.weight.sum().backward()
            optimizer.step()
            moves.append(before - model.weight.item())
    sync.detach()
    return moves


class _Scaled(torch.autograd.Function):
    """The sum of a weight times x; the gradient has the dtype of x."""

    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return (weight.to(x.dtype) * x).sum()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grad * ctx.saved_tensors[0], None
