"""What scripts do to a model and to DDP's wrapper: it ends as with DDP, or is said to do nothing."""

import copy
import io
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import fields
from typing import Any

import torch
from runtime.habit import ALL, TOPK, Habits, Rank, far, heard, refused, sgd
from runtime.models import batch, build
from runtime.ranks import ddp
from torch import nn
from torch.optim.swa_utils import AveragedModel

from ssfx.runtime.checks import ARGUMENTS
from ssfx.schemes import schemes

habits = Habits(__name__)
test_on_virtual_ranks, test_on_real_ranks = habits.tests()

# ---- as with DDP -----------------------------------------------------------------------------------------------------

OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "adam": lambda model: torch.optim.AdamW(model.parameters(), lr=1e-2),
    "groups": lambda model: torch.optim.SGD(
        [{"params": (every := list(model.parameters()))[:3], "lr": 0.01}, {"params": every[3:], "weight_decay": 0.1}],
        lr=0.1,
    ),
}
SMALL = ["", "autocast", "clip", "set_to_none=False", "never zeroed", "tied", *OPTIMIZERS]


@habits("tutorials of torch: amp, clip_grad_norm_, zero_grad, parameter groups", {}, ALL, {"scheme": "wfbp"}, how=SMALL)
def training_ends_as_with_ddp(one: Rank, how: str) -> None:
    kind = "tied" if how == "tied" else "mlp"  # tied and frozen parameters
    model, twin = build(kind), build(kind)
    make = OPTIMIZERS.get(how, sgd)
    nets, optimizers = (model, ddp(twin, one.group)), (one.attach(model, make(model))[0], make(twin))
    for step in range(4):
        for net, optimizer in zip(nets, optimizers, strict=True):
            if how != "never zeroed":
                optimizer.zero_grad(set_to_none=how != "set_to_none=False")
            with torch.autocast("cpu", torch.bfloat16, enabled=how == "autocast"):
                loss = one.loss(net, step, kind)
            loss.backward()
            if how == "clip":
                nn.utils.clip_grad_norm_(net.parameters(), 0.1)
            optimizer.step()
        for p, q in zip(model.parameters(), twin.parameters(), strict=True):
            assert (p.grad is None) == (q.grad is None)
            # Adam divides by a gradient that may be rounding noise itself
            assert how == "adam" or p.grad is None or far_of(p.grad, q.grad) < 1e-4
    assert far(model, twin) < (1e-2 if how == "adam" else 1e-5)


def far_of(a: torch.Tensor, b: torch.Tensor) -> float:
    """Return the largest difference over the largest number."""
    return float((a - b).abs().max() / (1e-12 + b.abs().max()))


@habits("nothing is rounded on the way: model.double()")
def float64_parameters_are_exchanged_in_full_precision(one: Rank) -> None:
    model, twin = build("mlp").double(), build("mlp").double()
    for net, optimizer in ((model, one.attach(model)[0]), (ddp(twin, one.group), sgd(twin))):
        one.train(net, optimizer, range(4), lambda step, net=net: _loss_of_dtype(net, one, step, torch.float64))
    assert far(model, twin) < 1e-14


def _loss_of_dtype(net: Any, one: Rank, step: int, dtype: torch.dtype) -> torch.Tensor:
    x, y = batch(one.rank, step)
    return nn.functional.cross_entropy(net(x.to(dtype)), y)


class Conv(nn.Module):
    """A small convolutional net whose weights and activations are channels_last."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 5)
        self.register_buffer("mask", torch.tensor([True, False, True, True, True]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.norm(self.conv(x))).mean((2, 3))) * self.mask


@habits("torch's page on channels_last", {}, ALL)
def strides_of_parameters_and_buffers_stay(one: Rank) -> None:
    torch.manual_seed(one.rank)  # attaching makes them equal, as DDP does
    model: Any = Conv().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer, _ = one.attach(model)
    twin = copy.deepcopy(model)
    for net, own in ((model, optimizer), (ddp(twin, one.group), sgd(twin))):

        def loss(step: int, net: Any = net) -> torch.Tensor:
            return net(one.randn(step, 4, 3, 6, 6).to(memory_format=torch.channels_last)).square().mean()

        one.train(net, own, range(4), loss)
    assert model.conv.weight.grad.stride() == model.conv.weight.stride()
    assert far(model, twin) < 1e-5


@habits("two optimizers over parts of a model")
def several_optimizers_exchange_once_a_step(one: Rank) -> None:
    model, twin = build("mlp"), build("mlp")
    parts = [sgd(list(model.parameters())[:2]), sgd(list(model.parameters())[2:])]
    _, sync = one.attach(model, parts)
    other, theirs = ddp(twin, one.group), sgd(twin)
    for step in range(4):
        one.train(model, parts, [step])
        one.train(other, theirs, [step])
        assert max(far_of(p.grad, q.grad) for p, q in zip(model.parameters(), twin.parameters(), strict=True)) < 1e-5
    assert sync.step == 4
    assert far(model, twin) < 1e-6


@habits("accelerate and Lightning hold optimizers", TOPK)
def a_wrapped_optimizer_is_seen_through(one: Rank) -> None:
    class Wrapped:
        def __init__(self, optimizer: torch.optim.Optimizer) -> None:
            self.optimizer = optimizer
            self.step, self.zero_grad = optimizer.step, optimizer.zero_grad

    model = build("mlp")
    wrapped, sync = one.attach(model, Wrapped(sgd(model)))
    one.train(model, wrapped, range(4))
    assert sync.step == 4


# ---- copies ----------------------------------------------------------------------------------------------------------


def _saved_and_read(model: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)  # type: ignore[no-any-return]


COPIES = {"deepcopy": copy.deepcopy, "averaged": AveragedModel, "saved": _saved_and_read}
WATCHING = [{}, TOPK, {"scheme": "ssfusion_oi", "density": 0.05}, {"scheme": "auto"}]


@habits("EMA and SWA: torch.optim.swa_utils.AveragedModel; a model that keeps its handle", how=COPIES)
def a_copy_has_no_handle(one: Rank, how: str) -> None:
    model = build("mlp")
    _, model.sync = one.attach(model)
    assert COPIES[how](model).get_submodule("module" if how == "averaged" else "").sync is None
    model.sync = None


@habits("EMA and SWA; a copy is trained on rank 0 alone", *WATCHING, how=COPIES)
def a_copy_exchanges_nothing(one: Rank, how: str) -> None:
    model, optimizer, sync = one.mlp()
    for step in range(8):
        optimizer.zero_grad()
        loss = one.loss(model, step)
        other = COPIES[how](model)
        bare = other.module if how == "averaged" else other
        assert list(bare.state_dict()) == list(model.state_dict())
        assert far(model, bare) == 0.0
        if one.rank == 0:
            with bare.no_sync():
                one.loss(bare, step).backward()
            one.loss(bare, step).backward()
        loss.backward()
        optimizer.step()
    assert sync.step == 8
    sync.detach()
    assert not hasattr(model, "no_sync")
    assert not model._forward_hooks


@habits("distillation: a copy of the model is trained by DDP")
def a_copy_may_train_inside_ddp(one: Rank) -> None:
    model, _, _ = one.mlp()
    other = ddp(copy.deepcopy(model), one.group)
    one.train(other, sgd(other), [0])
    assert one.agree(other)


# ---- accumulation, attributes and arguments of DDP -------------------------------------------------------------------


@habits("torch DDP: no_sync; Megatron and nanoGPT: require_backward_grad_sync", {}, ALL, how=["attribute", "no_sync"])
def accumulation(one: Rank, how: str) -> None:
    model, twin = build("mlp"), build("mlp")
    net: Any = torch.compile(model, backend="aot_eager") if how.startswith("compiled") else model
    mine, sync = one.attach(model if how == "compiled later" else net, sgd(model))
    theirs = sgd(twin)
    with heard() as lines:
        for step in range(5):
            for micro in range(4):
                last = micro == 3
                if how != "no_sync":
                    net.require_backward_grad_sync = last
                with net.no_sync() if how == "no_sync" and not last else nullcontext():
                    (one.loss(net, 4 * step + micro) / 4).backward()
                (one.loss(twin, 4 * step + micro) / 4).backward()
            one.average(twin)
            for optimizer in (mine, theirs):
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
    assert sync.step == 5
    assert far(model, twin) < 1e-5
    assert lines == []


@habits("nanoGPT: torch.compile", {}, ALL, how=["compiled", "compiled later"], real="only")
def accumulation_of_a_compiled_model(one: Rank, how: str) -> None:
    accumulation(one, how)


@habits("torch.compile", {}, TOPK, real="only")
def a_compiled_model_trains_like_an_eager_one(one: Rank) -> None:
    inner, eager = build("mlp"), build("mlp")
    model = torch.compile(inner, backend="aot_eager")
    (mine, sync), (theirs, other) = one.attach(model, sgd(inner)), one.attach(eager)
    one.train(model, mine, range(4))
    one.train(eager, theirs, range(4))
    torch._dynamo.reset()
    assert far(inner, eager) < 1e-5
    assert sorted(spec.name for spec in sync.plan.tensors) == sorted(spec.name for spec in other.plan.tensors)


@habits("torch DDP: no_sync inside no_sync")
def nested_no_sync_is_one(one: Rank) -> None:
    model, _, sync = one.mlp()
    with sync.no_sync():
        with sync.no_sync():
            one.loss(model, 0).backward()
        one.loss(model, 1).backward()
        assert sync.step == 0
    one.loss(model, 2).backward()
    assert sync.step == 1


@habits("attributes of DDP", name=["require_forward_param_sync", "find_unused_parameters", "broadcast_buffers"])
def an_attribute_of_ddp_without_effect_is_said_once(one: Rank, name: str) -> None:
    model, optimizer, _ = one.mlp()
    with heard() as lines:
        setattr(model, name, False)
        one.train(model, optimizer, range(3))
    (line,) = lines
    assert all(word in line for word in (name, "DistributedDataParallel", "attach.md"))
    assert "\n" not in line
    assert list(model.state_dict()) == list(build("mlp").state_dict())


@habits("arguments of DDP", name=ARGUMENTS)
def an_argument_of_ddp_is_told_what_holds_instead(one: Rank, name: str) -> None:
    with refused(name, "DistributedDataParallel", ARGUMENTS[name]):
        one.mlp(**{name: True})
    assert not any(name in {f.name for f in fields(scheme.defaults)} for scheme in schemes)


@habits("a model with a no_sync of its own")
def nothing_of_the_model_is_hidden(one: Rank) -> None:
    class WithNoSync(nn.Linear):
        def no_sync(self) -> str:
            return "its own"

    model = WithNoSync(3, 3)
    _, sync = one.attach(model)
    said = [model.no_sync(), hasattr(model, "module")]
    sync.detach()
    assert [*said, model.no_sync()] == ["its own", False, "its own"]


# ---- buffers, graphs, dtypes, optimizers -----------------------------------------------------------------------------


@habits("torch DDP: broadcast_buffers; batch norm, EMA codebooks by .data (VQ-VAE)", broadcast=[True, False])
def running_statistics_are_those_of_ddp(one: Rank, broadcast: bool) -> None:
    """Rank 0's buffers are those of a model alone, whose gradients are averaged; all ranks have them if broadcast."""
    ends = []
    for exchange in (True, False):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))
        model.register_buffer("table", torch.arange(1 << 15))  # a large one that never changes is not sent
        model.register_buffer("history", torch.zeros(1 << 15))
        model.register_buffer("book", torch.ones(1 << 15))
        optimizer = sgd(model)
        if exchange:
            one.attach(model, optimizer, broadcast_buffers=broadcast)
        for step in range(4):
            optimizer.zero_grad()
            model(one.randn(step, 8, 6) + one.rank).square().mean().backward()
            if not exchange:
                one.average(model)
            optimizer.step()
            if step == 1:
                model.history.add_(one.rank + 1)
            if step == 2:
                model.book.data.mul_(0.9).add_(one.rank + 1)  # which leaves no version
        ends.append(torch.cat([b.reshape(-1).double() for b in model.buffers()]))
    assert one.rank > 0 or torch.equal(*ends)
    assert one.agree(ends[:1]) or (one.rank > 0 and not broadcast)
    if one.rank:
        assert torch.equal(*ends) != broadcast


@habits("torch's test_distributed: create_graph", {}, {"scheme": "topk", "density": 1.0})
def a_graph_of_gradients_is_averaged(one: Rank) -> None:
    model = nn.Linear(6, 3, bias=False)
    nn.init.ones_(model.weight)
    one.attach(model)
    ((model.weight * (one.rank + 1)) ** 2).sum().backward(create_graph=True)
    right = sum(2 * (r + 1) ** 2 for r in range(one.world)) / one.world
    assert float((model.weight.grad.detach() - right).abs().max()) < 1e-6
    model.weight.grad = None


HALF = [{"scheme": "topk", "density": density} for density in (1.0, 0.3)]


@habits("a step before, between and without backward passes", {}, *HALF)
def a_step_without_a_backward_pass_on_any_rank_moves_nothing(one: Rank) -> None:
    torch.manual_seed(0)
    model = nn.Linear(6, 3)
    optimizer, sync = one.attach(model, torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5))
    for step, trains in enumerate((False, True, one.rank == 0, False, True)):
        optimizer.zero_grad()
        before = model.weight.detach().clone()
        if trains:
            model(one.randn(step, 8, 6)).square().mean().backward()
        optimizer.step()
        assert step not in (0, 3) or torch.equal(before, model.weight)
    assert sync.step == 3


class _Scaled(torch.autograd.Function):
    """The sum of a weight times x; the gradient has the dtype of x."""

    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return (weight.to(x.dtype) * x).sum()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grad * ctx.saved_tensors[0], None


DTYPES = {"double": (torch.float64, 1e-15), "grad_dtype": (torch.float32, 1e-6)}


@habits("torch.Tensor.grad_dtype; model.double()", case=list(DTYPES)[: 1 + hasattr(torch.Tensor, "grad_dtype")])
def gradients_are_averaged_in_their_own_dtype(one: Rank, case: str) -> None:
    model, (wide, error) = nn.Linear(16, 16, bias=False), DTYPES[case]
    if case == "grad_dtype":
        model.bfloat16()
        model.weight.grad_dtype = wide  # type: ignore[attr-defined]
    one.attach(model, torch.optim.SGD(model.parameters(), 0.0))
    if case == "double":
        model.double()
    values = [torch.randn(16, 16, generator=torch.Generator().manual_seed(r), dtype=wide) for r in range(one.world)]
    _Scaled.apply(model.weight, values[one.rank]).backward()
    assert model.weight.grad.dtype == wide
    assert far_of(model.weight.grad.double(), torch.stack(values).double().mean(0)) < error


EXACT = ({}, ALL)
ROUNDED = (
    {"scheme": "ddp_bf16"},
    TOPK | {"density": 0.1, "memory": "momentum"},
    {"scheme": "ddp_quantized", "compressor": "qsgd(bits=4,bucket=48,norm=max)"},
    {"scheme": "powersgd", "compressor": "powersgd(rank=4)"},
)


@habits("Muon (torch.optim.Muon, modded-nanogpt) for matrices, AdamW for the rest", *EXACT, *ROUNDED)
def an_optimizer_that_orthogonalises_gets_the_same_averages(one: Rank) -> None:
    """DDP's weights to the bit where everything is sent, and everywhere those of the averages that are in .grad."""

    def start() -> tuple[nn.Module, list[torch.optim.Optimizer]]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(11, 24), nn.Linear(24, 40), nn.Tanh(), nn.Linear(40, 24), nn.LayerNorm(24))
        matrices = [model[1].weight, model[3].weight]
        rest = [p for p in model.parameters() if all(p is not one for one in matrices)]
        return model, [torch.optim.Muon(matrices, lr=0.02), torch.optim.AdamW(rest, lr=0.01)]

    (model, optimizers), (twin, theirs), (replay, replayed) = start(), start(), start()
    one.attach(model, optimizers)
    other = ddp(twin, one.group)
    for number in range(6):
        words = torch.randint(0, 11, (8, 5), generator=torch.Generator().manual_seed(100 * one.rank + number))
        for net, own in ((model, optimizers), (other, theirs)):
            one.train(
                net, own, [number], lambda _, net=net, words=words: (net(words) - words[..., None] / 11).square().mean()
            )
        for p, q in zip(model.parameters(), replay.parameters(), strict=True):
            q.grad = p.grad.clone()
        for optimizer in replayed:
            optimizer.step()
        assert far(model, replay) == 0.0
    assert (far(model, twin) > 0) == (one.options in ROUNDED)
