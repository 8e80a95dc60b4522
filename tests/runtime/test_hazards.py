"""What a script may do that could corrupt an exchange or hang it: it goes well or is refused."""

import gc
import threading
from contextlib import suppress
from typing import Any

import pytest
import torch
import torch.distributed as dist
from runtime.cases import DENSE, SPARSE, of_scheme, turns
from runtime.habit import DGC, TOPK, Habits, Rank, far, refused, sgd
from runtime.models import build
from runtime.test_queue import Message, messages, running
from runtime.work import given_times
from torch import nn
from torch.utils.checkpoint import checkpoint

import ssfx
from ssfx.collectives.comm import Comm
from ssfx.core.errors import RunError
from ssfx.planning.plan import Bucket, Lane, Plan, Segment, launch_in_order

habits = Habits(__name__)
test_on_virtual_ranks, test_on_real_ranks = habits.tests()


@habits("torch.amp.GradScaler(enabled=False), as most scripts pass it", TOPK)
def a_disabled_grad_scaler_is_none(one: Rank) -> None:
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    model, optimizer, _ = one.mlp(scaler=scaler)
    for step in range(3):
        optimizer.zero_grad()
        scaler.scale(one.loss(model, step) * (float("inf") if step == 1 and one.rank == 0 else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()


@habits("torch's page on amp: unscale_, then clip", {}, TOPK)
def a_grad_scaler_with_clipping_changes_nothing(one: Rank) -> None:
    models = []
    for enabled in (True, False):
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2, enabled=enabled)
        model, optimizer, _ = one.mlp(scaler=scaler)
        for step in range(4):
            optimizer.zero_grad()
            scaler.scale(one.loss(model, step)).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            scaler.step(optimizer)
            scaler.update()
        models.append(model)
    assert far(*models) < 1e-5


@habits("out of memory caught in the loop (fairseq)", {"scheme": "wfbp"})
def a_caught_error_in_backward_is_not_trained_over(one: Rank) -> None:
    def fail(gradient: torch.Tensor) -> None:
        raise ValueError("broken")

    model, optimizer, _ = one.mlp(0.0)
    one.train(model, optimizer, range(2))
    handle = model.first.weight.register_hook(fail)
    with suppress(ValueError):
        one.loss(model, 77).backward()
    handle.remove()
    with refused("ended with an exception", kind=RunError):
        one.loss(model, 3).backward()


@habits("torch.utils.checkpoint(use_reentrant=True)", {}, TOPK)
def reentrant_checkpointing_changes_nothing(one: Rank) -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner: Any = build("mlp")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.tanh(self.inner.middle(torch.tanh(self.inner.first(x))))
            return checkpoint(lambda v: self.inner.last(self.inner.norm(v)) * self.inner.gain, y, use_reentrant=True)

    models = [Checkpointed(), build("mlp")]
    for model in models:
        optimizer, sync = one.attach(model)
        one.train(model, optimizer, range(4))
        assert sync.step == 4
    assert far(*models) < 1e-5


@habits("torch.optim: optimizer.step(closure)", TOPK)
def a_closure_exchanges_once_a_step(one: Rank) -> None:
    model, optimizer, sync = one.mlp()

    def evaluate() -> torch.Tensor:
        optimizer.zero_grad()
        loss = one.loss(model, sync.step)
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(evaluate)
    assert sync.step == 3


@habits("fine-tuning: the head is replaced, before the first step or later", {}, TOPK, at=[0, 2])
def a_head_of_another_shape_and_its_statistics_are_exchanged_at_once(one: Rank, at: int) -> None:
    model = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 2))
    optimizer, _ = one.attach(model, momentum=0.0)
    for step in range(5):
        if step == at:
            model[1] = nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 9))
            optimizer.param_groups[0]["params"] = list(model.parameters())
        one.train(model, optimizer, [step], lambda step: model(one.randn(step, 4, 6)).square().mean())
        assert one.agree([*model.parameters(), *([model[1][0].running_mean] if step >= at else [])])


@habits("transfer learning: a layer is frozen after some steps", {}, TOPK)
def parameters_may_be_frozen_later(one: Rank) -> None:
    model, optimizer, sync = one.mlp()
    one.train(model, optimizer, range(2))
    optimizer.zero_grad()
    weight = model.middle.weight.requires_grad_(False).detach().clone()
    one.train(model, optimizer, range(2, 5))
    assert torch.equal(weight, model.middle.weight)
    assert model.middle.weight.grad is None
    assert (sync.step, sync.skipped_steps) == (5, 0)


OTHERS = {
    "scheme": ({"scheme": "ssfusion_oi"}, {"scheme": "ddp"}),
    "profile_iters": ({"scheme": "ssfusion_oi"}, {"scheme": "ssfusion_oi", "profile_iters": 7}),
    "seed": tuple({"scheme": "per_tensor", "compressor": "randomk", "seed": seed} for seed in (0, 1)),
    "memory": tuple({"scheme": "per_tensor", "memory": memory} for memory in ("residual", "dgc")),
}


@habits("a launcher that gives ranks other arguments", which=OTHERS)
def ranks_with_other_options_are_refused(one: Rank, which: str) -> None:
    with refused("rank 1"):
        one.mlp(0.0, **OTHERS[which][one.rank])


CHANGED = {"density": 0.2, "compressor": "dgc", "memory": "dgc", "seed": 3}


@habits("resuming with other arguments", TOPK, change=CHANGED)
def a_state_of_other_options_is_refused(one: Rank, change: str) -> None:
    (model, optimizer, sync), (other, second, resumed) = one.mlp(0.0), one.mlp(0.0, **{change: CHANGED[change]})
    one.train(model, optimizer, range(2))
    one.train(other, second, range(2))
    with refused():
        resumed.load_state_dict(sync.state_dict())


@habits("a checkpoint of the first iterations", DGC)
def a_state_from_profiling_profiles_again(one: Rank) -> None:
    model, optimizer, sync = one.mlp(0.0)
    one.train(model, optimizer, [0])
    state = sync.state_dict()
    one.train(model, optimizer, range(1, 8))
    sync.load_state_dict(state)
    one.train(model, optimizer, range(1, 8))
    assert sync.plan.scheme == "ssfusion_oi"


@habits("a notebook cell that is run twice")
def attaching_twice_is_refused(one: Rank) -> None:
    model, _, _ = one.mlp()
    with refused("detach"):
        one.attach(model)


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


MANY = TOPK | {"density": 0.999, "grouping": "none"}
VARIABLE = {"scheme": "hard_threshold", "density": 0.999, "memory": "none"}
ON_HOST = MANY | {"seed": 1}


@habits("SyncBatchNorm", {"scheme": "wfbp"}, VARIABLE, MANY, ON_HOST, world=3, real="only")
def collectives_in_backward_do_not_mix_with_the_exchange(one: Rank) -> None:
    """Beside a twin that is averaged by hand; the last case compresses every other tensor on the host."""
    torch.manual_seed(0)
    width = 64 if one.options == ON_HOST else 16
    models = [nn.ModuleList(nn.Linear(width, width) for _ in range(12)) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    (mine, sync), theirs = one.attach(models[0], process_group=None), sgd(models[1])
    if one.options == ON_HOST:
        sync._planner._stop_observing()
        specs, places = sync.plan.tensors, ("host", "device")
        segments = [Segment((s.name,), "topk", 0.9999, placement=places[i % 2]) for i, s in enumerate(specs)]
        buckets = tuple(Bucket((Lane("all_gather", (segment,)),)) for segment in segments)
        sync._install(Plan("per_tensor", one.world, specs, buckets, launch_in_order(buckets, specs)))
    for step in range(20):
        x = one.randn(step, 4, width)
        for model, optimizer in ((models[0], mine), (models[1], theirs)):
            optimizer.zero_grad()
            y = x
            for layer in model:
                y = Summed.apply(torch.tanh(layer(y)), one.group)
            (y.square().mean() * 1e-4).backward()
            if model is models[1]:
                one.average(model)
            optimizer.step()
    assert far(*models) < 1e-2


EVERY = turns([*DENSE, *SPARSE], ("bfloat16", "float64"))


@habits("torch.set_default_dtype, which all virtual ranks would share", real="only", scheme=[one for one, _ in EVERY])
@given_times()
def the_default_dtype_of_torch_changes_nothing(one: Rank, scheme: str) -> None:
    models = []
    for default in (torch.float32, getattr(torch, dict(EVERY)[scheme])):
        model = build("mlp")
        torch.manual_seed(one.rank)
        batches = [(torch.randn(8, 20), torch.randint(5, (8,))) for _ in range(8)]
        torch.set_default_dtype(default)
        try:
            optimizer, _ = one.attach(model, **of_scheme(scheme, one.world))
            one.train(
                model,
                optimizer,
                range(8),
                lambda step, net=model, all_=batches: nn.functional.cross_entropy(net(all_[step][0]), all_[step][1]),
            )
        finally:
            torch.set_default_dtype(torch.float32)
        models.append(model)
    assert far(*models) == 0.0


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
