"""Where ranks attach or load different things, the error names the first of them and the ranks."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from runtime.models import Mlp, build, loss_of
from runtime.pool import Pool
from runtime.ranks import each_rank
from runtime.test_guards import said
from runtime.work import costs_for
from runtime.work_attach import SPARSE, Options, same_on_all_ranks
from runtime.work_guards import error_of
from torch import nn

import ssfx
from ssfx.runtime.checks import difference


def _sgd(model: nn.Module, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), **{"lr": 0.1, **options})


def _groups(model: nn.Module, first: int) -> torch.optim.Optimizer:
    every = list(model.parameters())
    return torch.optim.SGD([{"params": every[:first]}, {"params": every[first:], "weight_decay": 0.1}], lr=0.1)


def _named(**parts: nn.Module) -> nn.Module:
    return nn.ModuleDict(parts)


def _with_buffer(rows: int) -> nn.Module:
    model = Mlp()
    model.register_buffer("table", torch.zeros(rows))
    return model


def _plain(odd: bool) -> dict[str, Any]:
    return {"model": Mlp()}


CASES: dict[str, Callable[[bool], dict[str, Any]]] = {
    "scheme": lambda odd: {"scheme": "oktopk" if odd else "topk", "density": 0.1},
    "density": lambda odd: SPARSE | {"density": 0.2 if odd else 0.05},
    "compressor": lambda odd: SPARSE | {"compressor": "dgc" if odd else "topk"},
    "memory": lambda odd: SPARSE | {"memory": "none" if odd else "residual"},
    "seed": lambda odd: SPARSE | {"seed": 3 if odd else 0},
    "costs": lambda odd: {"scheme": "ssfusion_oi", "costs": costs_for(3) if odd else None},
    "scaler": lambda odd: {"scaler": torch.amp.GradScaler("cpu") if odd else None},
    "scale": lambda odd: {"scaler": torch.amp.GradScaler("cpu", init_scale=2.0 if odd else 4.0)},
    "optimizer": lambda odd: {"optimizer": lambda m: torch.optim.Adam(m.parameters(), 0.1) if odd else _sgd(m)},
    "rate": lambda odd: {"optimizer": lambda m: _sgd(m, lr=0.2 if odd else 0.1)},
    "tensor rate": lambda odd: {"optimizer": lambda m: _sgd(m, lr=torch.tensor(0.25 if odd else 0.5))},
    "momentum": lambda odd: {"optimizer": lambda m: _sgd(m, momentum=0.9 if odd else 0.0)},
    "groups": lambda odd: {"optimizer": lambda m: _groups(m, 3 if odd else 2)},
    "name": lambda odd: {"model": _named(odd=nn.Linear(3, 3)) if odd else _named(even=nn.Linear(3, 3))},
    "shape": lambda odd: {"model": nn.Linear(4, 4 + odd)},
    "dtype": lambda odd: {"model": nn.Linear(4, 4, dtype=torch.bfloat16 if odd else None)},
    "more": lambda odd: {"model": nn.Linear(4, 4, bias=odd)},
    "frozen": lambda odd: {"model": nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).requires_grad_(odd))},
    "buffer": lambda odd: {"model": _with_buffer(2 + odd)},
}


def _trained(model: nn.Module, optimizer: Any, rank: int, steps: range) -> None:
    for step in steps:
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()


OTHER: dict[str, Callable[[dict[str, Any], dict[str, Any]], None]] = {
    "step": lambda state, earlier: state.update(earlier),
    "scale": lambda state, earlier: state.update(scale=2.0),
    "skipped": lambda state, earlier: state.update(skipped_steps=1),
    "unreadable": lambda state, earlier: state.update(plan="{"),
}


def loads(group: Any, rank: int, world: int, case: str, options: Options) -> dict[str, Any]:
    """Load, on rank 1, a state that does not go with the others'; train on with what was there."""
    model = build("mlp")
    optimizer = _sgd(model)
    sync = ssfx.attach(model, optimizer, process_group=group, costs=costs_for(world), **options)
    states = []
    for begin in (0, 3):
        _trained(model, optimizer, rank, range(begin, begin + 3))
        states.append(copy.deepcopy(sync.state_dict()))
    earlier, state = states
    if rank == 1:
        OTHER[case](state, earlier)
    before = copy.deepcopy(sync.state_dict())
    text = error_of(lambda: sync.load_state_dict(state))
    after = sync.state_dict()
    untouched = before["step"] == after["step"] and all(
        torch.equal(value, after["memory"][name][buffer])
        for name, buffers in before["memory"].items()
        for buffer, value in buffers.items()
    )
    _trained(model, optimizer, rank, range(6, 8))
    steps = sync.step
    sync.load_state_dict(sync.state_dict())  # the next one, on all ranks, is not taken for the first
    sync.detach()
    return {"text": text, "untouched": untouched, "steps": steps, "agree": same_on_all_ranks(group, model)}


WORDS = {
    "scheme": ["scheme is topk on ranks 0, 2 and oktopk on rank 1"],
    "density": ["option density is 0.05 on ranks 0, 2 and 0.2 on rank 1"],
    "compressor": ["option compressor is 'topk' on", "and 'dgc' on rank 1"],
    "memory": ["memory is residual", "and none on rank 1"],
    "seed": ["seed is 0 on ranks 0, 2 and 3 on rank 1"],
    "costs": ["argument costs is None on ranks 0, 2 and given on rank 1"],
    "scaler": ["GradScaler is none on ranks 0, 2 and scale 65536", "on rank 1"],
    "scale": ["GradScaler is scale 4,", "and scale 2,", "on rank 1"],
    "optimizer": ["kind of the optimizer is SGD on ranks 0, 2 and Adam on rank 1"],
    "rate": ["learning rate of group 0 is 0.1 on ranks 0, 2 and 0.2 on rank 1"],
    "tensor rate": ["learning rate of group 0 is 0.5 on ranks 0, 2 and 0.25 on rank 1"],
    "momentum": ["momentum of group 0 is 0.0 on ranks 0, 2 and 0.9 on rank 1"],
    "groups": ["parameter number 2 is first.bias", "held by group 1 on ranks 0, 2", "held by group 0 on rank 1"],
    "name": ["parameter number 0 is even.weight", "and odd.weight", "on rank 1"],
    "shape": ["parameter number 0 is weight, float32 (4, 4)", "(5, 4)", "on rank 1"],
    "dtype": ["parameter number 0 is weight, float32", "bfloat16 (4, 4)"],
    "more": ["parameter number 1 is missing on ranks 0, 2 and bias, float32 (4,)"],
    "frozen": ["parameter number 2 is 1.weight, float32 (2, 2), frozen on ranks 0, 2"],
    "buffer": ["buffer number 0 is table, float32 (2,) on ranks 0, 2 and table, float32 (3,) on rank 1"],
}


@pytest.mark.parametrize("case", CASES)
@each_rank(3)
def test_the_first_thing_that_differs_is_named(group, rank, world, case):
    options = CASES[case](rank == 1)
    model = options.pop("model", None) or build("mlp")
    optimizer = options.pop("optimizer", _sgd)(model)
    said(
        error_of(lambda: ssfx.attach(model, optimizer, process_group=group, **options).detach()),
        *WORDS[case],
        "on every rank",
    )


def test_what_only_some_ranks_have_differs() -> None:
    assert difference([{"a": "1"}, {"a": "1"}]) == ""
    assert difference([{"a": "1"}, {"a": "1", "b": "2"}]) == "b is missing on rank 0 and 2 on rank 1"
    many = [{"step": "6"}] * 7 + [{"step": "3"}] * 2
    assert difference(many) == "step is 6 on ranks 0, 1, 2, 3 and 3 more and 3 on ranks 7, 8"


LOADED = {
    "step": ["step is 6 on ranks 0, 2 and 3 on rank 1", "after the same step"],
    "scale": ["loss scale is 1 on ranks 0, 2 and 2 on rank 1"],
    "skipped": ["skipped_steps is 0 on ranks 0, 2 and 1 on rank 1"],
    "unreadable": ["plan", "cannot be read"],
}


@pytest.mark.parametrize(
    "options",
    [SPARSE, {"scheme": "acpsgd"}, {"scheme": "fused_all", "compressor": "randomk", "density": 0.1}],
    ids=["topk", "acpsgd", "randomk"],
)
@pytest.mark.parametrize("case", OTHER)
def test_states_that_do_not_go_together_are_refused_on_every_rank(
    pool: Pool, case: str, options: dict[str, Any]
) -> None:
    for rank, report in enumerate(pool.run(loads, 3, case, options)):
        said(report["text"], *LOADED[case])
        assert case != "unreadable" or rank == 1 or "rank 1 cannot load its state" in report["text"]
        assert report["untouched"]
        assert report["steps"] == 8
        assert report["agree"]
