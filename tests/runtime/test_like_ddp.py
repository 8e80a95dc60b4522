"""Buffers, graphs of gradients, join, steps without a backward pass, dtypes of gradients: as with torch DDP."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from runtime.pool import Pool
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
def test_a_graph_of_gradients_is_averaged_too(pool: Pool, options: dict[str, Any]) -> None:
    assert max(pool.run(graph_of_gradients, 2, options)) < 1e-6


@pytest.mark.parametrize(("initial", "moves"), [(True, [1.0, 1 / 3, 1 / 3]), (False, [1.0, 1.0, 1.0])])
def test_join_divides_by_all_ranks_or_by_those_that_train(pool: Pool, initial: bool, moves: list[float]) -> None:
    assert pool.run(divided_by_active, 3, initial)[0] == pytest.approx(moves)


def test_an_argument_that_join_does_not_have_is_named(pool: Pool) -> None:
    for text in pool.run(unknown_argument_of_join, 2):
        assert "average" in text
        assert "divide_by_initial_world_size" in text


@pytest.mark.parametrize("options", SCHEMES, ids=["ddp", "topk 1", "topk 0.3"])
def test_a_step_without_a_backward_pass_on_any_rank_moves_nothing(pool: Pool, options: dict[str, Any]) -> None:
    for still, agree, steps in pool.run(idle_steps, 2, options):
        assert still
        assert agree
        assert steps == 3


@pytest.mark.parametrize(
    ("case", "dtype", "error"),
    [
        pytest.param("grad_dtype", "torch.float32", 1e-6, marks=pytest.mark.skipif(
            not hasattr(torch.Tensor, "grad_dtype"), reason="this torch has no grad_dtype")),
        ("double", "torch.float64", 1e-15),
    ],
)  # fmt: skip
def test_gradients_are_averaged_in_their_own_dtype(pool: Pool, case: str, dtype: str, error: float) -> None:
    for found, off in pool.run(of_wider_gradients, 2, case):
        assert found == dtype
        assert off < error


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
def test_an_optimizer_that_orthogonalises_gets_the_same_averages(
    pool: Pool, options: dict[str, Any], differs: bool
) -> None:
    """Muon for matrices, AdamW for the rest: DDP's weights bit for bit where everything is sent."""
    for far, by_averages, alike in pool.run(orthogonalised, 2, options):
        assert (far > 0) == differs
        assert by_averages
        assert alike


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
        if exchange == "ssfx":
            sync.detach()
        else:  # DDP sends rank 0's when the next forward pass begins
            for buffer in model.buffers() if broadcast else ():
                dist.broadcast(buffer, dist.get_global_rank(group, 0), group=group)
        ends.append(torch.cat([b.reshape(-1).double() for b in model.buffers()]))
    first = ends[0].clone()
    dist.broadcast(first, dist.get_global_rank(group, 0), group=group)
    return torch.equal(*ends) or (rank > 0 and not broadcast), torch.equal(ends[0], first)


def graph_of_gradients(group: Any, rank: int, world: int, options: dict[str, Any]) -> float:
    """Return how far the average is off after backward(create_graph=True)."""
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
    return error


def divided_by_active(group: Any, rank: int, world: int, initial: bool) -> list[float]:
    """Rank 0 has three batches and the others one; every gradient is 1. Return how far each step moved the weight."""
    model = nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    sync = ssfx.attach(model, optimizer, process_group=group)
    moves = []
    with sync.join(divide_by_initial_world_size=initial):
        for _ in range(3 if rank == 0 else 1):
            optimizer.zero_grad()
            before = float(model.weight)
            model.weight.sum().backward()
            optimizer.step()
            moves.append(before - float(model.weight))
    sync.detach()
    return moves


def unknown_argument_of_join(group: Any, rank: int, world: int) -> str:
    model = nn.Linear(1, 1)
    sync = ssfx.attach(model, torch.optim.SGD(model.parameters(), 1.0), process_group=group)
    text = error_of(lambda: sync.join_hook(average="active"))
    sync.detach()
    return text


def idle_steps(group: Any, rank: int, world: int, options: dict[str, Any]) -> tuple[bool, bool, int]:
    """A step before any backward pass, then one that a rank skips, then one that all skip.

    Return whether idle steps moved nothing, whether ranks agree in the end, and how many exchanges counted.
    """
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
    return still, torch.equal(mine, model.weight.detach()), steps


def of_wider_gradients(group: Any, rank: int, world: int, case: str) -> tuple[str, float]:
    """Gradients are of another dtype than the weights were at attach; return theirs, and the average's error."""
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
    error = float((grad.double() - right).abs().max() / right.abs().max())
    sync.detach()
    return str(grad.dtype), error


class _Scaled(torch.autograd.Function):
    """The sum of a weight times x; the gradient has the dtype of x."""

    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return (weight.to(x.dtype) * x).sum()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grad * ctx.saved_tensors[0], None


def orthogonalised(group: Any, rank: int, world: int, options: dict[str, Any]) -> tuple[float, bool, bool]:
    """Train matrices with Muon and the rest with AdamW; return how far from DDP weights end, and two facts.

    Whether both optimizers moved weights by the averages that are in `.grad`, and whether all ranks ended alike.
    """

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
    return far, exact, torch.equal(flat, first)
