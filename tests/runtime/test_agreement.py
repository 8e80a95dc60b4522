"""Where ranks attach or load different things, the error names the first of them and the ranks."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from runtime.habit import TOPK, Habits, Rank, refused
from runtime.models import Mlp, build
from runtime.work import costs_for
from torch import nn

from ssfx.runtime.checks import difference

habits = Habits(__name__)
test_on_virtual_ranks, test_on_real_ranks = habits.tests()


def _sgd(model: nn.Module, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), **{"lr": 0.1, **options})


def _groups(model: nn.Module, first: int) -> torch.optim.Optimizer:
    every = list(model.parameters())
    return torch.optim.SGD([{"params": every[:first]}, {"params": every[first:], "weight_decay": 0.1}], lr=0.1)


def _with_buffer(rows: int) -> nn.Module:
    model = Mlp()
    model.register_buffer("table", torch.zeros(rows))
    return model


DIFFERS: dict[str, tuple[Callable[[bool], dict[str, Any]], list[str]]] = {
    "scheme": (
        lambda odd: {"scheme": "oktopk" if odd else "topk", "density": 0.1},
        ["scheme is topk on ranks 0, 2 and oktopk on rank 1"],
    ),
    "density": (
        lambda odd: TOPK | {"density": 0.2 if odd else 0.05},
        ["option density is 0.05 on ranks 0, 2 and 0.2 on rank 1"],
    ),
    "compressor": (
        lambda odd: TOPK | {"compressor": "dgc" if odd else "topk"},
        ["option compressor is 'topk' on", "and 'dgc' on rank 1"],
    ),
    "memory": (
        lambda odd: TOPK | {"memory": "none" if odd else "residual"},
        ["memory is residual", "and none on rank 1"],
    ),
    "seed": (lambda odd: TOPK | {"seed": 3 if odd else 0}, ["seed is 0 on ranks 0, 2 and 3 on rank 1"]),
    "costs": (
        lambda odd: {"scheme": "ssfusion_oi", "costs": costs_for(3) if odd else None},
        ["argument costs is None on ranks 0, 2 and given on rank 1"],
    ),
    "scaler": (
        lambda odd: {"scaler": torch.amp.GradScaler("cpu") if odd else None},
        ["GradScaler is none on ranks 0, 2 and scale 65536", "on rank 1"],
    ),
    "scale": (
        lambda odd: {"scaler": torch.amp.GradScaler("cpu", init_scale=2.0 if odd else 4.0)},
        ["GradScaler is scale 4,", "and scale 2,", "on rank 1"],
    ),
    "optimizer": (
        lambda odd: {"optimizer": lambda m: torch.optim.Adam(m.parameters(), 0.1) if odd else _sgd(m)},
        ["kind of the optimizer is SGD on ranks 0, 2 and Adam on rank 1"],
    ),
    "rate": (
        lambda odd: {"optimizer": lambda m: _sgd(m, lr=0.2 if odd else 0.1)},
        ["learning rate of group 0 is 0.1 on ranks 0, 2 and 0.2 on rank 1"],
    ),
    "tensor rate": (
        lambda odd: {"optimizer": lambda m: _sgd(m, lr=torch.tensor(0.25 if odd else 0.5))},
        ["learning rate of group 0 is 0.5 on ranks 0, 2 and 0.25 on rank 1"],
    ),
    "momentum": (
        lambda odd: {"optimizer": lambda m: _sgd(m, momentum=0.9 if odd else 0.0)},
        ["momentum of group 0 is 0.0 on ranks 0, 2 and 0.9 on rank 1"],
    ),
    "groups": (
        lambda odd: {"optimizer": lambda m: _groups(m, 3 if odd else 2)},
        ["parameter number 2 is first.bias", "held by group 1 on ranks 0, 2", "held by group 0 on rank 1"],
    ),
    "name": (
        lambda odd: {"model": nn.ModuleDict({"odd" if odd else "even": nn.Linear(3, 3)})},
        ["parameter number 0 is even.weight", "and odd.weight", "on rank 1"],
    ),
    "shape": (
        lambda odd: {"model": nn.Linear(4, 4 + odd)},
        ["parameter number 0 is weight, float32 (4, 4)", "(5, 4)", "on rank 1"],
    ),
    "dtype": (
        lambda odd: {"model": nn.Linear(4, 4, dtype=torch.bfloat16 if odd else None)},
        ["parameter number 0 is weight, float32", "bfloat16 (4, 4)"],
    ),
    "more": (
        lambda odd: {"model": nn.Linear(4, 4, bias=odd)},
        ["parameter number 1 is missing on ranks 0, 2 and bias, float32 (4,)"],
    ),
    "frozen": (
        lambda odd: {"model": nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).requires_grad_(odd))},
        ["parameter number 2 is 1.weight, float32 (2, 2), frozen on ranks 0, 2"],
    ),
    "buffer": (
        lambda odd: {"model": _with_buffer(2 + odd)},
        ["buffer number 0 is table, float32 (2,) on ranks 0, 2 and table, float32 (3,) on rank 1"],
    ),
}


@habits("a launcher that gives ranks other arguments", world=3, case=DIFFERS)
def the_first_thing_that_differs_is_named(one: Rank, case: str) -> None:
    options, words = DIFFERS[case][0](one.rank == 1), DIFFERS[case][1]
    model = options.pop("model", None) or build("mlp")
    optimizer = options.pop("optimizer", _sgd)(model)
    with refused(*words, "on every rank"):
        one.attach(model, optimizer, **{"costs": None, **options})


def test_what_only_some_ranks_have_differs() -> None:
    assert difference([{"a": "1"}, {"a": "1"}]) == ""
    assert difference([{"a": "1"}, {"a": "1", "b": "2"}]) == "b is missing on rank 0 and 2 on rank 1"
    many = [{"step": "6"}] * 7 + [{"step": "3"}] * 2
    assert difference(many) == "step is 6 on ranks 0, 1, 2, 3 and 3 more and 3 on ranks 7, 8"


LOADED: dict[str, tuple[Callable[[dict[str, Any], dict[str, Any]], None], list[str]]] = {
    "step": (
        lambda state, earlier: state.update(earlier),
        ["step is 6 on ranks 0, 2 and 3 on rank 1", "after the same step"],
    ),
    "scale": (lambda state, _: state.update(scale=2.0), ["loss scale is 1 on ranks 0, 2 and 2 on rank 1"]),
    "skipped": (lambda state, _: state.update(skipped_steps=1), ["skipped_steps is 0 on ranks 0, 2 and 1 on rank 1"]),
    "unreadable": (lambda state, _: state.update(plan="{"), ["plan", "cannot be read"]),
}
SCHEMES = (TOPK, {"scheme": "acpsgd"}, {"scheme": "fused_all", "compressor": "randomk", "density": 0.1})


@habits("a checkpoint of another step, or half a file, on one rank", *SCHEMES, world=3, case=LOADED)
def states_that_do_not_go_together_are_refused_on_every_rank(one: Rank, case: str) -> None:
    """Load, on rank 1, a state that does not go with the others'; train on with what was there."""
    model, optimizer, sync = one.mlp(0.0)
    change, words = LOADED[case]
    one.train(model, optimizer, range(3))
    earlier = copy.deepcopy(sync.state_dict())
    one.train(model, optimizer, range(3, 6))
    state = copy.deepcopy(sync.state_dict())
    if one.rank == 1:
        change(state, earlier)
    before = copy.deepcopy(sync.state_dict())
    told = ["rank 1 cannot load its state"] if case == "unreadable" and one.rank != 1 else []
    with refused(*words, *told):
        sync.load_state_dict(state)
    after = sync.state_dict()
    assert before["step"] == after["step"]
    for name, buffers in before["memory"].items():
        assert all(torch.equal(value, after["memory"][name][key]) for key, value in buffers.items())
    one.train(model, optimizer, range(6, 8))
    assert sync.step == 8
    sync.load_state_dict(sync.state_dict())  # the next one, on all ranks, is not taken for the first
