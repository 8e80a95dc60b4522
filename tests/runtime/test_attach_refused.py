"""What `ssfx.attach` and `load_state_dict` refuse, in one line and on every rank."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from runtime.models import Mlp, build, loss_of
from runtime.ranks import each_rank
from runtime.work_attach import SPARSE as TOPK
from runtime.work_attach import Options, sgd
from runtime.work_guards import error_of
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ssfx
from ssfx.core.errors import ConfigError


def _refused(model: torch.nn.Module, optimizer: torch.optim.Optimizer, options: Options) -> str:
    with pytest.raises(ConfigError) as caught:
        ssfx.attach(model, optimizer, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scheme": "ssfusion_io"}, ["ssfusion_io", "did you mean 'ssfusion_o"]),
        ({"scheme": "per_tensor", "compressor": "topp"}, ["topp", "topk"]),
        ({"scheme": "per_tensor", "compressor": "topk(value_type=float16)"}, ["value_type", "value_dtype"]),
        ({"scheme": "per_tensor", "memory": "residul"}, ["residul", "residual"]),
        ({"scheme": "per_tensor", "memory": "momentum(decay=2)"}, ["decay"]),
        ({"scheme": "per_tensor", "denisty": 0.1}, ["denisty", "density"]),
        ({"scheme": "per_tensor", "density": 2}, ["density", "2"]),
        ({"scheme": "per_tensor", "density": 0}, ["density", "0"]),
        ({"scheme": "ddp", "density": 0.1}, ["density=0.1", "ddp"]),
        ({"scheme": "ddp", "compressor": "topk"}, ["topk", "fp16"]),
        ({"scheme": "ddp", "memory": "residual"}, ["memory=residual"]),
        ({"scheme": "per_tensor", "compressor": "fp16", "memory": "residual"}, ["residual", "fp16", "none"]),
        ({"scheme": "per_tensor", "compressor": "topk", "memory": "dgc"}, ["momentum=0"]),
    ],
    ids=lambda value: " ".join(f"{v}" for v in value.values()) if isinstance(value, dict) else "",
)
def test_a_wrong_option_is_refused_in_one_line(options: Options, words: list[str]) -> None:
    model = build("mlp")
    text = _refused(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), options)
    assert "\n" not in text
    for word in words:
        assert word in text


def test_dgc_memory_refuses_adam() -> None:
    model = build("mlp")
    text = _refused(model, torch.optim.Adam(model.parameters()), {**TOPK, "memory": "dgc"})
    assert "SGD with momentum=0" in text


@pytest.mark.parametrize(
    ("parameter", "options", "words"),
    [
        (torch.zeros(3, dtype=torch.complex64), {}, ["weight", "complex64", "float32"]),
        (torch.zeros(3, dtype=torch.float64), TOPK, ["weight", "float64", "ddp"]),
    ],
    ids=["complex", "float64 compressed"],
)
def test_a_dtype_that_cannot_be_sent_is_named(parameter: torch.Tensor, options: Options, words: list[str]) -> None:
    model = torch.nn.Module()
    model.weight = torch.nn.Parameter(parameter)
    text = _refused(model, torch.optim.SGD(model.parameters(), lr=0.1), options)
    assert "\n" not in text
    for word in words:
        assert word in text


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (
            slice(0, 3),
            "discard takes a bool tensor that broadcasts to (4, 4), got a slice; for rows write rows[:, None]",
        ),
        (torch.tensor([0, 2]), "got a tensor of torch.int64; for rows write rows[:, None]"),
        (
            torch.tensor([True, False, True, False]),
            "a mask of shape (4,) names no rows of a weight of (4, 4); write rows",
        ),
        (torch.ones(3, 1, dtype=torch.bool), "a mask of shape (3, 1) does not broadcast to a weight of (4, 4)"),
    ],
    ids=["slice", "indices", "one dimension", "another shape"],
)
@pytest.mark.parametrize("before", [False, True])
def test_discard_refuses_what_is_no_mask_of_rows(where: Any, said: str, before: bool) -> None:
    model = nn.Linear(4, 4)
    sync = ssfx.attach(model, sgd(model.parameters()))
    if not before:
        model(torch.ones(2, 4)).sum().backward()
    with pytest.raises(ConfigError, match=re.escape(said)):
        sync.discard(model.weight, where)
    assert before or bool(model.weight.grad.all())
    sync.discard(model.weight, torch.tensor([True, False, True, False])[:, None])
    assert before or model.weight.grad.count_nonzero(dim=1).tolist() == [0, 4, 0, 4]
    sync.detach()


def test_a_model_with_nothing_to_train_is_refused() -> None:
    model = torch.nn.Linear(2, 2).requires_grad_(False)
    model.register_parameter("counts", torch.nn.Parameter(torch.zeros(3, dtype=torch.int64), requires_grad=False))
    assert "no trainable parameters" in _refused(model, torch.optim.SGD(model.parameters(), lr=0.1), {})


def _ddp_wrapped(group: Any, rank: int) -> None:
    model = DistributedDataParallel(build("mlp"), process_group=group)
    ssfx.attach(model, sgd(model.parameters()), process_group=group)


def _another_model(group: Any, rank: int) -> None:
    model = nn.Linear(4, 4 + (rank == 1))
    ssfx.attach(model, sgd(model.parameters()), process_group=group)


def _another_frozen_part(group: Any, rank: int) -> None:
    model = Mlp()
    model.frozen = nn.Linear(3, 3 + (rank == 1)).requires_grad_(False)
    ssfx.attach(model, sgd(model.parameters()), process_group=group)


def _sparse_gradient(group: Any, rank: int) -> None:
    model = nn.Embedding(10, 4, sparse=True)
    sync = ssfx.attach(model, sgd(model.parameters(), 0.0), process_group=group)
    try:
        model(torch.tensor([1, 2])).sum().backward()
    finally:
        sync.detach()


def _state_of(options: Options, model: nn.Module, change: Callable[[dict[str, Any]], None]) -> Callable[..., None]:
    def load(group: Any, rank: int) -> None:
        mine = build("mlp")
        sync = ssfx.attach(mine, sgd(mine.parameters()), process_group=group, **options)
        other = ssfx.attach(model, sgd(model.parameters()), process_group=group)
        state = other.state_dict()
        change(state)
        other.detach()
        try:
            sync.load_state_dict(state)
        finally:
            sync.detach()

    return load


def _inside_ddp(first: str) -> Callable[[Any, int], None]:
    def train(group: Any, rank: int) -> None:
        model = build("mlp")
        if first == "ddp":
            wrapped = DistributedDataParallel(model, process_group=group)
            sync = ssfx.attach(model, sgd(model.parameters()), process_group=group)
        else:
            sync = ssfx.attach(model, sgd(model.parameters()), process_group=group)
            wrapped = DistributedDataParallel(model, process_group=group)
        try:
            loss_of(wrapped, rank, 0, "mlp").backward()
        finally:
            sync.detach()

    return train


def _fully_sharded(group: Any, rank: int) -> None:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    model = nn.Linear(4, 4)
    fully_shard(model, mesh=DeviceMesh.from_group(group, "cpu"))
    ssfx.attach(model, sgd(model.parameters()), scheme="topk")


def _another_optimizer(group: Any, rank: int) -> None:
    ssfx.attach(build("mlp"), sgd(build("mlp").parameters()), process_group=group)


def _half_an_optimizer(group: Any, rank: int) -> None:
    model = build("mlp")
    ssfx.attach(model, sgd(list(model.parameters())[1:]), process_group=group)


def _no_optimizer(group: Any, rank: int) -> None:
    ssfx.attach(build("mlp"), build("mlp"), process_group=group)  # type: ignore[arg-type]


def _no_module(group: Any, rank: int) -> None:
    ssfx.attach(list(build("mlp").parameters()), sgd(build("mlp").parameters()), process_group=group)


def _own_state(change: Callable[[dict[str, Any]], None]) -> Callable[[Any, int], None]:
    def load(group: Any, rank: int) -> None:
        model = build("mlp")
        sync = ssfx.attach(model, sgd(model.parameters()), process_group=group, **TOPK)
        try:
            loss_of(model, rank, 0, "mlp").backward()
            state = sync.state_dict()
            assert state["memory"]
            change(state)
            sync.load_state_dict(state)
        finally:
            sync.detach()

    return load


def _first_residual(state: dict[str, Any]) -> dict[str, torch.Tensor]:
    return next(buffers for buffers in state["memory"].values() if "residual" in buffers)


REFUSED: dict[str, tuple[Callable[[Any, int], None], list[str]]] = {
    "ddp": (_ddp_wrapped, ["DistributedDataParallel", "bare module"]),
    "another model": (_another_model, ["rank 1"]),
    "another frozen part": (_another_frozen_part, ["rank 1"]),
    "sparse gradient": (_sparse_gradient, ["weight", "sparse=False"]),
    "inside ddp, made before": (_inside_ddp("ddp"), ["DistributedDataParallel", "detach"]),
    "inside ddp, made after": (_inside_ddp("attach"), ["DistributedDataParallel", "detach"]),
    "fully_shard": (_fully_sharded, ["residual of the whole model", "memory="]),
    "optimizer of another model": (_another_optimizer, ["none of the model's parameters"]),
    "optimizer of a part": (_half_an_optimizer, ["does not hold parameter", "list"]),
    "no optimizer": (_no_optimizer, ["torch.optim.Optimizer"]),
    "no module": (_no_module, ["torch.nn.Module"]),
    "no state": (_own_state(dict.clear), ["state_dict()"]),
    "state of another format": (_own_state(lambda s: s.update(format=99)), ["format 99"]),
    "state with a damaged plan": (_own_state(lambda s: s.update(plan="{")), ["plan"]),
    "state with a residual that is not finite": (
        _own_state(lambda s: _first_residual(s).update(residual=_first_residual(s)["residual"] * float("nan"))),
        ["not finite"],
    ),
    "state with a residual of another shape": (
        _own_state(lambda s: _first_residual(s).update(residual=torch.zeros(3, 1))),
        ["(3, 1)"],
    ),
    "state of another world size": (
        _state_of({}, build("mlp"), lambda s: s.update(world_size=8)),
        ["world_size=8", "2"],
    ),
    "state of another rank": (_state_of({}, build("mlp"), lambda s: s.update(rank=7)), ["rank=7"]),
    "state of another scheme": (_state_of(TOPK, build("mlp"), lambda s: None), ["scheme=ddp", "per_tensor"]),
    "state of another model": (_state_of({}, build("tied"), lambda s: None), ["another model"]),
}


@pytest.mark.parametrize("case", REFUSED)
@each_rank(2)
def test_what_cannot_work_is_refused_on_every_rank(group, rank, world, case):
    attach, words = REFUSED[case]
    text = error_of(lambda: attach(group, rank))
    assert text
    assert "\n" not in text
    for word in words:
        assert word in text
