"""What a script may do that could corrupt an exchange or hang it: it goes well or is refused."""

import gc
import threading
from contextlib import suppress
from typing import Any

import pytest
import torch
import torch.distributed as dist
from runtime.cases import DENSE, SPARSE, in_turn, of_scheme
from runtime.models import build, loss_of
from runtime.ranks import each_rank
from runtime.test_queue import Message, messages, running
from runtime.work import costs_for, given_times, train
from runtime.work_attach import DGC, _step, attach_mlp, distance, same_on_all_ranks, sgd
from runtime.work_attach import SPARSE as TOPK
from runtime.work_guards import error_of
from torch import nn
from torch.utils.checkpoint import checkpoint

import ssfx
from ssfx.collectives.comm import Comm
from ssfx.core.errors import ConfigError, RunError


class Checkpointed(nn.Module):
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(self.inner.middle(torch.tanh(self.inner.first(x))))
        return checkpoint(lambda v: self.inner.last(self.inner.norm(v)) * self.inner.gain, y, use_reentrant=True)


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


def test_a_lane_under_way_when_a_step_was_given_up_is_not_counted_in_the_next() -> None:
    entered, leave = threading.Event(), threading.Event()

    def slow() -> None:
        entered.set()
        leave.wait(10)

    with running() as queue:
        issued: list[int] = []
        queue.begin([Message(9, issued, slow, blocking=True)])  # type: ignore[list-item]
        queue.ready(0)
        assert entered.wait(10)
        queue.fail(RuntimeError("a host segment failed"))
        with pytest.raises(RuntimeError, match="host segment"):
            queue.drain()
        queue.begin(messages(2, issued))
        leave.set()
        queue.ready(1)
        queue.ready(0)
        queue.drain()
        assert issued == [9, 0, 1]


@each_rank(2)
def test_a_disabled_grad_scaler_is_no_grad_scaler(group, rank, world):
    """A disabled GradScaler passed to attach; one bad step."""
    model = build("mlp")
    optimizer = sgd(model.parameters())
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    sync = ssfx.attach(model, optimizer, process_group=group, scaler=scaler, **TOPK)
    for step in range(3):
        optimizer.zero_grad()
        loss = loss_of(model, rank, step) * (float("inf") if step == 1 and rank == 0 else 1.0)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    sync.detach()
    assert all(bool(torch.isfinite(p).all()) for p in model.parameters())


@each_rank(2)
def test_a_caught_error_in_backward_is_not_trained_over(group, rank, world):
    """A backward fails on all ranks after some gradients and is caught."""

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
    assert "ended with an exception" in text


@pytest.mark.parametrize("options", [{}, TOPK], ids=["ddp", "topk"])
@each_rank(2)
def test_reentrant_checkpointing_changes_nothing(group, rank, world, options):
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
    assert steps == 4
    assert distance(*ends) < 1e-5


@each_rank(2)
def test_an_optimizer_with_a_closure_exchanges_once_a_step(group, rank, world):
    model, optimizer, sync = attach_mlp(group, **TOPK)

    for step in range(3):

        def evaluate(step: int = step) -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, rank, step)
            loss.backward()
            return loss

        optimizer.step(evaluate)
    sync.detach()
    assert sync.step == 3


@pytest.mark.parametrize("at", [0, 2])
@pytest.mark.parametrize("options", [{}, TOPK], ids=["ddp", "topk"])
@each_rank(2)
def test_a_head_of_another_shape_and_its_statistics_are_exchanged_at_once(group, rank, world, at, options):
    """Before the first step, and later; ranks that exchange all but the head part with the next step."""
    model = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 2))
    optimizer = sgd(model.parameters(), 0.0)
    sync = ssfx.attach(model, optimizer, process_group=group, **options)
    for step in range(5):
        if step == at:
            model[1] = nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 9))
            optimizer.param_groups[0]["params"] = list(model.parameters())
        optimizer.zero_grad()
        model(torch.randn(4, 6, generator=torch.Generator().manual_seed(10 * step + rank))).square().mean().backward()
        optimizer.step()
        assert same_on_all_ranks(group, model)
        if step >= at:
            mine = model[1][0].running_mean
            first = mine.clone()
            dist.broadcast(first, dist.get_global_rank(group, 0), group=group)
            assert torch.equal(mine, first)
    sync.detach()


@pytest.mark.parametrize(
    "options",
    [
        [{"scheme": "ssfusion_oi"}, {"scheme": "ddp"}],
        [{"scheme": "ssfusion_oi"}, {"scheme": "ssfusion_oi", "profile_iters": 7}],
        [
            {"scheme": "per_tensor", "compressor": "randomk", "seed": 0},
            {"scheme": "per_tensor", "compressor": "randomk", "seed": 1},
        ],
        [{"scheme": "per_tensor", "memory": "residual"}, {"scheme": "per_tensor", "memory": "dgc"}],
    ],
    ids=["scheme", "profile_iters", "seed", "memory"],
)
@each_rank(2)
def test_ranks_with_other_options_are_refused(group, rank, world, options):
    model = build("mlp")

    def attach() -> None:
        ssfx.attach(model, sgd(model.parameters(), 0.0), process_group=group, **options[rank]).detach()

    assert "rank 1" in error_of(attach)


@pytest.mark.parametrize(
    ("saved", "loaded"),
    [
        (TOPK, TOPK | {"density": 0.2}),
        (TOPK, TOPK | {"compressor": "dgc"}),
        (TOPK, TOPK | {"memory": "dgc"}),
        (TOPK, TOPK | {"seed": 3}),
    ],
    ids=["density", "compressor", "memory", "seed"],
)
@each_rank(2)
def test_a_state_of_other_options_is_refused(group, rank, world, saved, loaded):
    """Load the state of a run with other options."""
    states = []
    for options in (saved, loaded):
        model, optimizer, sync = attach_mlp(group, 0.0, **{"costs": costs_for(world), **options})
        train(model, optimizer, rank, range(2))
        states.append(sync.state_dict())
        if options is loaded:
            text = error_of(lambda sync=sync: sync.load_state_dict(states[0]))
        sync.detach()
    assert text


@each_rank(2)
def test_a_state_from_profiling_profiles_again(group, rank, world):
    """Load a state saved while profiling into a run that has its plan."""
    model, optimizer, sync = attach_mlp(group, 0.0, costs=costs_for(world), **DGC)
    _step(model, optimizer, rank, 0, "mlp", "")
    state = sync.state_dict()
    train(model, optimizer, rank, range(1, 8))
    sync.load_state_dict(state)
    train(model, optimizer, rank, range(1, 8))
    sync.detach()
    assert sync.plan.scheme == "ssfusion_oi"


@each_rank(2)
def test_attaching_twice_is_refused(group, rank, world):
    model = build("mlp")
    sync = ssfx.attach(model, sgd(model.parameters()), process_group=group)

    def attach() -> None:
        ssfx.attach(model, sgd(model.parameters()), process_group=group).detach()

    text = error_of(attach)
    sync.detach()
    assert "detach" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"scheme": "wfbp"},
        {"scheme": "per_tensor", "compressor": "topk", "density": 0.999, "grouping": "none"},
    ],
    ids=["wfbp", "per_tensor"],
)
@each_rank(3)
def test_collectives_in_backward_do_not_mix_with_the_exchange(group, rank, world, options):
    torch.manual_seed(0)
    models = [nn.ModuleList(nn.Linear(16, 16) for _ in range(12)) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [sgd(m.parameters()) for m in models]
    sync = ssfx.attach(models[0], optimizers[0], costs=costs_for(world), **options)
    train_during_all_reduce(models, optimizers, group, rank, world, 16)
    sync.detach()
    assert distance(*models) < 1e-2


@pytest.mark.slow
@each_rank(3)
def test_host_placed_lanes_do_not_mix_with_collectives_in_backward(group, rank, world):
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
    assert distance(*models) < 1e-2


@each_rank(2)
def test_a_parameter_unfrozen_later_is_exchanged_or_refused(group, rank, world):
    model = build("mlp")
    model.middle.weight.requires_grad_(False)
    optimizer = sgd(model.parameters(), 0.0)
    sync = ssfx.attach(model, optimizer, process_group=group)
    _step(model, optimizer, rank, 0, "mlp", "")
    model.middle.weight.requires_grad_(True)
    refused = False
    try:
        _step(model, optimizer, rank, 1, "mlp", "")
    except ConfigError:
        refused = True
    finally:
        sync.detach()
    assert refused or same_on_all_ranks(group, model)


@in_turn("options,dtype", [of_scheme(scheme, 2) for scheme in [*DENSE, *SPARSE]], ("bfloat16", "float64"))
@each_rank(2)
@given_times()
def test_the_default_dtype_of_torch_changes_nothing(group, rank, world, options, dtype):
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
    assert torch.equal(*ends)


def test_a_new_optimizer_at_the_address_of_one_that_has_stepped_is_no_second_step() -> None:
    def train(rank: int, comm: Comm) -> tuple[bool, list[float]]:
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 3)
        sync = ssfx.attach(model, torch.optim.SGD(model.parameters(), 0.1), comm=comm, scheme="ddp")
        model(torch.ones(2, 4)).sum().backward()
        for _ in range(50):  # until one is there: what another thread collects or allocates may take the addresses
            held = [torch.optim.SGD(model.parameters(), 0.0) for _ in range(30)]
            for one in held:
                one.step()
            addresses = {id(one) for one in held}
            if rank == 0:
                held.clear()
                del one
                gc.collect()
            # One rank alone makes many: the other, in the same process, would take the addresses that became free.
            made = [torch.optim.SGD(model.parameters(), 0.1) for _ in range(1 if rank else 3000)]
            new = next((one for one in made if id(one) in addresses), made[0])
            there = id(new) in addresses
            if there or rank:
                break
        new.step()  # with the same averages
        sync.detach()
        return there, model.bias.tolist()

    (there, one), (elsewhere, other) = ssfx.virtual_ranks(train, 2)
    assert there
    assert not elsewhere
    assert one == other
