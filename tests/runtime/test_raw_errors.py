"""What once ended in an error of Python's or torch's own: it trains as with torch DDP, or one line says what to do."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from runtime.models import batch, build
from runtime.ranks import add_up, among, each_rank, is_rank_0s
from runtime.work_guards import error_of
from torch import nn
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer

import ssfx

SCHEMES: list[dict[str, Any]] = [
    {"scheme": "ddp"},
    {"scheme": "topk", "density": 0.2},
    {"scheme": "per_tensor", "compressor": "topk", "density": 0.1},
    {"scheme": "ssfusion_oi", "density": 0.1, "rule": "paper"},
]


class Wrapped(torch.optim.Optimizer):
    """As many do: the groups of another optimizer, and no `super().__init__()`."""

    def __init__(self, base: torch.optim.Optimizer) -> None:
        self.base, self.param_groups = base, base.param_groups

    def step(self, closure: Any = None) -> Any:
        return self.base.step(closure)


class Hollow(torch.optim.Optimizer):
    def __init__(self, params: Any) -> None:
        self.param_groups = [{"params": list(params)}]


@pytest.mark.parametrize("options", SCHEMES, ids=str)
@each_rank(2, by="ranks")
def test_an_optimizer_inside_one_without_hooks_is_found(group, rank, world, options):
    model = build("mlp")
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    wrapped = Wrapped(Wrapped(inner))
    sync = ssfx.attach(model, wrapped, **among(group), **options)
    assert sync.optimizers == (inner,)
    for step in range(3):
        inner.zero_grad()
        nn.functional.cross_entropy(model(batch(rank, step)[0]), batch(rank, step)[1]).backward()
        wrapped.step()
        assert is_rank_0s(model.first.weight, group)
    assert sync.stats()["discarded_exchanges"] == 0
    sync.detach()
    assert "torch's __init__" in error_of(lambda: ssfx.attach(model, Hollow(model.parameters()), **among(group)))


@each_rank(2)
def test_torchs_wrapper_for_local_steps_is_seen_through(group, rank, world):
    model = build("mlp")
    optimizer = PostLocalSGDOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), PeriodicModelAverager(2, process_group=group)
    )
    sync = ssfx.attach(model, optimizer, process_group=group)
    for step in range(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch(rank, step)[0]), batch(rank, step)[1]).backward()
        optimizer.step()
        assert is_rank_0s(model.first.weight, group)
    sync.detach()


@pytest.mark.parametrize("options", SCHEMES, ids=str)
@pytest.mark.filterwarnings("ignore:Lazy modules")
@each_rank(2, by="ranks")
def test_a_lazy_layer_that_comes_later_is_exchanged_once_it_has_a_shape(group, rank, world, options):
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sync = ssfx.attach(model, optimizer, **among(group), **options)
    for step in range(4):
        if step == 2:
            model.append(nn.LazyLinear(4))
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        if step == 2:
            optimizer.add_param_group({"params": [*model[1].parameters()]})
    assert len(sync._params) == 4
    assert all(is_rank_0s(p, group) for p in model.parameters())
    sync.detach()


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.LBFGS], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("options", SCHEMES, ids=str)
@each_rank(2, by="ranks")
def test_gradients_of_a_step_that_is_undone_can_be_read_and_repaired(group, rank, world, options, kind):
    """Logged, clipped, repaired: by AdamW, which moves weights by its momentum where gradients are zero, too."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2), nn.Linear(2, 2))
    optimizer = kind(model.parameters(), lr=0.1)
    sync = ssfx.attach(model, optimizer, **among(group), **options)

    def closure(step: int, factor: float) -> torch.Tensor:
        optimizer.zero_grad()
        hidden = model[0](torch.full((4, 8), float(rank + step)))
        loss = (hidden if rank else model[1](hidden)).square().mean() * factor  # a rank does not reach all weights
        loss.backward()
        return loss.detach()

    for step, habit in enumerate(("", "read", "repair", "clip", "")):
        before = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
        factor = float("nan") if habit and not rank else 1.0
        if kind is torch.optim.LBFGS:
            optimizer.step(lambda step=step, factor=factor: closure(step, factor))
        else:
            closure(step, factor)
            parameters = [*model[:2].parameters()]
            if habit == "repair":
                for p in parameters:
                    torch.nan_to_num(p.grad, out=p.grad)
            elif habit == "clip":
                nn.utils.clip_grad_norm_(parameters, 1.0)
            norms = [float(p.grad.norm()) for p in parameters]
            optimizer.step()
            assert all((norm != norm) == (habit in ("read", "clip")) for norm in norms)
            assert all(p.grad is not None for p in parameters)
        after = nn.utils.parameters_to_vector(model.parameters()).detach()
        if habit in ("read", "clip"):
            assert torch.equal(after, before)
        assert bool(after.isfinite().all())
        assert is_rank_0s(after, group)
    assert sync.skipped_steps >= 3
    sync.detach()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute")  # Dynamo looks at what it traces
@pytest.mark.parametrize("options", SCHEMES, ids=str)
@pytest.mark.parametrize("whole", [True, False])
@each_rank(2, by="ranks")
def test_a_compiled_step_with_its_backward_pass_trains_as_one_that_is_not(group, rank, world, options, whole):
    results = []
    for compiled in (True, False):
        model = build("mlp")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        sync = ssfx.attach(model, optimizer, **among(group), **options)

        def step(x, y, model=model, optimizer=optimizer):
            nn.functional.cross_entropy(model(x), y).backward()
            if whole:
                optimizer.step()
                optimizer.zero_grad()

        run = torch.compile(step, backend="eager") if compiled else step
        for number in range(4):
            run(*batch(rank, number))
            if not whole:
                optimizer.step()
                optimizer.zero_grad()
        results.append(nn.utils.parameters_to_vector(model.parameters()).detach())
        assert sync.step == 4
        sync.detach()
    assert torch.equal(*results)
    total = results[0].clone()
    add_up(total, group)
    assert torch.equal(total, world * results[0])


@pytest.mark.parametrize("options", SCHEMES, ids=str)
@each_rank(2)
def test_weights_that_torch_swaps_when_they_are_converted_are_exchanged(group, rank, world, options):
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        model = nn.Sequential(nn.Linear(8, 8))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        sync = ssfx.attach(model, optimizer, process_group=group, **options)
        for step in range(4):
            optimizer.zero_grad()
            model(torch.full((4, 8), float(rank + step)).to(model[0].weight.dtype)).square().mean().backward()
            optimizer.step()
            if step == 1:
                model.bfloat16()
        assert sync.step == 4
        assert is_rank_0s(model[0].weight.float(), group)
        sync.detach()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    dist.barrier(group)
