"""What `ssfx.attach`, its handle and `load_state_dict` refuse, in one line and on every rank."""

import re
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from runtime.habit import TOPK, Habits, Options, Rank, refused, sgd
from runtime.models import Mlp, build
from runtime.ranks import ddp
from torch import nn

import ssfx

habits = Habits(__name__)
test_on_virtual_ranks, test_on_real_ranks = habits.tests()


# ---- arguments -------------------------------------------------------------------------------------------------------

OPTIONS: list[tuple[Options, list[str]]] = [
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
]
KINDS: dict[str, tuple[Any, str]] = {
    "schema": ("ddp", "did you mean scheme?"),
    "scheme": (["ddp", "topk"], "attach takes one scheme"),
    "compressor": (3, "compressor is text"),
    "memory": (True, "memory is text"),
    "density": ([0.1], "density is the kept fraction"),
    "scaler": (True, "GradScaler"),
    "process_group": ("gloo", "torch.distributed.new_group"),
    "costs": ("64gpu", "no name of a cluster"),
    "profile": ("mine.json", "Profile.from_json"),
    "accumulate": (2, "sync.no_sync()"),
    "max_grad_norm": (1.0, "clip between backward"),
    "cluster": ("64gpu", "key of ssfx advise"),
    "error_feedback": (True, 'memory="residual"'),
    "exempt": (None, "() for none; got None"),
    "trace": ("yes", "trace is True or False"),
    "broadcast_buffers": ("no", "broadcast_buffers is True or False"),
    "bucket_cap_mb": (25, "argument of DistributedDataParallel"),
    "find_unused_params": (True, "argument of DistributedDataParallel"),
    "gradient_accumulation": (4, "sync.no_sync()"),
    "method": ("topk", "scheme='topk'"),
    "fp16": (True, "torch.autocast"),
    "sparsity": (0.99, "which is 1 less the sparsity"),
    "compress_ratio": (0.01, "density, the share that is kept"),
}
"""Arguments of another kind, or of another library."""
GIVEN: dict[str, tuple[Callable[..., Any], str]] = {
    "swapped": (lambda model, optimizer: (optimizer, model), "model comes first"),
    "state": (lambda model, optimizer: (model.state_dict(), optimizer), "the module itself"),
    "parameters": (lambda model, optimizer: (model.parameters(), optimizer), "the module itself"),
    "several": (lambda model, optimizer: ([model], optimizer), "torch.nn.ModuleList"),
    "name": (lambda model, optimizer: (model, "sgd"), "torch.optim.Optimizer"),
    "schedule": (
        lambda model, optimizer: (model, torch.optim.lr_scheduler.StepLR(optimizer, 1)),
        "its schedule StepLR; give the optimizer",
    ),
}
MISTAKEN: dict[str, tuple[Callable[..., Any], str]] = {
    "model": (lambda sync: sync(torch.ones(1)), "and call model as before"),
    "context": (lambda sync: sync.__enter__(), "attach returns a handle"),
    "module": (lambda sync: sync.module, "the script has it"),
    "reducer": (lambda sync: sync.allreduce(), "sync.synchronize()"),
    "words": (lambda sync: sync.clip_grad_norm_(1.0), "the script does that"),
    "slip": (lambda sync: sync.stat(), "did you mean sync.stat"),
}
"""What the handle is taken for."""


@pytest.mark.parametrize(("options", "words"), OPTIONS, ids=str)
def test_a_wrong_option_is_refused_in_one_line(options: Options, words: list[str]) -> None:
    model = build("mlp")
    with refused(*words):
        ssfx.attach(model, sgd(model), **options)


@pytest.mark.parametrize("name", KINDS)
def test_an_argument_of_another_kind_is_one_line(name: str) -> None:
    value, said = KINDS[name]
    model = build("mlp")
    with refused(said):
        ssfx.attach(model, sgd(model), **{"scheme": "ddp", name: value})


@pytest.mark.parametrize("exempt", [3, [3], object(), "vector"])
def test_kinds_that_are_exempt_are_words(exempt: Any) -> None:
    model = build("mlp")
    with refused("exempt"):
        ssfx.attach(model, sgd(model), exempt=exempt)


@pytest.mark.parametrize("case", GIVEN)
def test_what_is_no_model_or_no_optimizer_is_one_line(case: str) -> None:
    model = build("mlp")
    given, said = GIVEN[case]
    with refused(said):
        ssfx.attach(*given(model, sgd(model)))


@pytest.mark.parametrize("scheme", ["ddp", "diloco"])
@pytest.mark.parametrize("case", MISTAKEN)
def test_a_handle_that_is_taken_for_something_else_says_what_is_meant(case: str, scheme: str) -> None:
    model = build("mlp")
    sync, (use, said) = ssfx.attach(model, sgd(model), scheme=scheme), MISTAKEN[case]
    with pytest.raises((TypeError, AttributeError), match=re.escape(said)):
        use(sync)
    sync.detach()


def test_the_scheme_may_be_the_third_argument() -> None:
    model = build("mlp")
    sync = ssfx.attach(model, sgd(model), "topk", density=0.5)
    assert sync.scheme.name == "topk"
    sync.detach()


def test_dgc_memory_refuses_adam() -> None:
    model = build("mlp")
    with refused("SGD with momentum=0"):
        ssfx.attach(model, torch.optim.Adam(model.parameters()), memory="dgc", **TOPK)


@pytest.mark.parametrize(
    ("dtype", "options", "words"),
    [
        (torch.complex64, {}, ["weight", "complex64", "float32"]),
        (torch.float64, TOPK, ["weight", "float64", "ddp"]),
    ],
    ids=["complex", "float64 compressed"],
)
def test_a_dtype_that_cannot_be_sent_is_named(dtype: torch.dtype, options: Options, words: list[str]) -> None:
    model = torch.nn.Module()
    model.weight = torch.nn.Parameter(torch.zeros(3, dtype=dtype))
    with refused(*words):
        ssfx.attach(model, sgd(model), **options)


def test_a_model_with_nothing_to_train_is_refused() -> None:
    model = torch.nn.Linear(2, 2).requires_grad_(False)
    model.register_parameter("counts", torch.nn.Parameter(torch.zeros(3, dtype=torch.int64), requires_grad=False))
    with refused("no trainable parameters"):
        ssfx.attach(model, sgd(model))


def test_attaching_in_inference_mode_is_refused() -> None:
    model = torch.nn.Linear(3, 2)
    with torch.inference_mode(), refused("inference_mode", "no_grad"):
        ssfx.attach(model, sgd(model))


MASKS: dict[str, tuple[Any, str]] = {
    "slice": (
        slice(0, 3),
        "discard takes a bool tensor that broadcasts to (4, 4), got a slice; for rows write rows[:, None]",
    ),
    "indices": (torch.tensor([0, 2]), "got a tensor of torch.int64; for rows write rows[:, None]"),
    "one dimension": (
        torch.tensor([True, False, True, False]),
        "a mask of shape (4,) names no rows of a weight of (4, 4); write rows",
    ),
    "another shape": (
        torch.ones(3, 1, dtype=torch.bool),
        "a mask of shape (3, 1) does not broadcast to a weight of (4, 4)",
    ),
}


@pytest.mark.parametrize("case", MASKS)
@pytest.mark.parametrize("before", [False, True])
def test_discard_refuses_what_is_no_mask_of_rows(case: str, before: bool) -> None:
    model = nn.Linear(4, 4)
    sync = ssfx.attach(model, sgd(model))
    if not before:
        model(torch.ones(2, 4)).sum().backward()
    with refused(MASKS[case][1]):
        sync.discard(model.weight, MASKS[case][0])
    assert before or bool(model.weight.grad.all())
    sync.discard(model.weight, torch.tensor([True, False, True, False])[:, None])
    assert before or model.weight.grad.count_nonzero(dim=1).tolist() == [0, 4, 0, 4]
    sync.detach()


# ---- models, optimizers and states -----------------------------------------------------------------------------------


def _another_frozen_part(one: Rank) -> None:
    model = Mlp()
    model.frozen = nn.Linear(3, 3 + (one.rank == 1)).requires_grad_(False)
    one.attach(model)


def _sparse_gradient(one: Rank) -> None:
    model = nn.Embedding(10, 4, sparse=True)
    one.attach(model, momentum=0.0)
    model(torch.tensor([1, 2])).sum().backward()


def _inside_ddp(one: Rank, first: str) -> None:
    model = build("mlp")
    wrapped = ddp(model, one.group) if first == "ddp" else None
    one.attach(model)
    one.loss(wrapped or ddp(model, one.group), 0).backward()


def _fully_sharded(one: Rank) -> None:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    model = nn.Linear(4, 4)
    fully_shard(model, mesh=DeviceMesh.from_group(one.group, "cpu"))
    ssfx.attach(model, sgd(model), scheme="topk")


def _half_an_optimizer(one: Rank) -> None:
    model = build("mlp")
    one.attach(model, sgd(list(model.parameters())[1:]))


def _state_of(change: Callable[[dict[str, Any]], None], kind: str = "mlp", **options: Any) -> Callable[[Rank], None]:
    def load(one: Rank) -> None:
        _, _, sync = one.mlp(**options)
        model = build(kind)
        other = one.attach(model)[1]
        state = other.state_dict()
        change(state)
        sync.load_state_dict(state)

    return load


def _own_state(change: Callable[[dict[str, Any]], None]) -> Callable[[Rank], None]:
    def load(one: Rank) -> None:
        model, _, sync = one.mlp(**TOPK)
        one.loss(model, 0).backward()
        state = sync.state_dict()
        assert state["memory"]
        change(state)
        sync.load_state_dict(state)

    return load


def _first_residual(state: dict[str, Any]) -> dict[str, torch.Tensor]:
    return next(buffers for buffers in state["memory"].values() if "residual" in buffers)


def _spoil(state: dict[str, Any]) -> None:
    _first_residual(state)["residual"] = _first_residual(state)["residual"] * float("nan")


def _reshape(state: dict[str, Any]) -> None:
    _first_residual(state)["residual"] = torch.zeros(3, 1)


def _nothing(_: Any) -> None: ...


REFUSED: dict[str, tuple[Callable[[Rank], Any], list[str]]] = {
    "another model": (lambda one: one.attach(nn.Linear(4, 4 + (one.rank == 1))), ["rank 1"]),
    "another frozen part": (_another_frozen_part, ["rank 1"]),
    "sparse gradient": (_sparse_gradient, ["weight", "sparse=False"]),
    "optimizer of another model": (
        lambda one: one.attach(build("mlp"), sgd(build("mlp"))),
        ["none of the model's parameters"],
    ),
    "optimizer of a part": (_half_an_optimizer, ["does not hold parameter", "list"]),
    "no optimizer": (lambda one: one.attach(build("mlp"), build("mlp")), ["torch.optim.Optimizer"]),
    "no module": (lambda one: one.attach(list(build("mlp").parameters()), sgd(build("mlp"))), ["torch.nn.Module"]),
    "no state": (_own_state(dict.clear), ["state_dict()"]),
    "state of another format": (_own_state(lambda s: s.update(format=99)), ["format 99"]),
    "state with a damaged plan": (_own_state(lambda s: s.update(plan="{")), ["plan"]),
    "state with a residual that is not finite": (_own_state(_spoil), ["not finite"]),
    "state with a residual of another shape": (_own_state(_reshape), ["(3, 1)"]),
    "state of another world size": (_state_of(lambda s: s.update(world_size=8)), ["world_size=8", "2"]),
    "state of another rank": (_state_of(lambda s: s.update(rank=7)), ["rank=7"]),
    "state of another scheme": (_state_of(_nothing, **TOPK), ["scheme=ddp", "per_tensor"]),
    "state of another model": (_state_of(_nothing, "tied"), ["another model"]),
}
OF_REAL_RANKS: dict[str, tuple[Callable[[Rank], Any], list[str]]] = {
    "ddp": (lambda one: one.attach(ddp(build("mlp"), one.group)), ["DistributedDataParallel", "bare module"]),
    "inside ddp, made before": (lambda one: _inside_ddp(one, "ddp"), ["DistributedDataParallel", "detach"]),
    "inside ddp, made after": (lambda one: _inside_ddp(one, "attach"), ["DistributedDataParallel", "detach"]),
    "fully_shard": (_fully_sharded, ["residual of the whole model", "memory="]),
}


@habits("what cannot work", case=REFUSED)
def what_cannot_work_is_refused_on_every_rank(one: Rank, case: str) -> None:
    attach, words = (REFUSED | OF_REAL_RANKS)[case]
    with refused(*words):
        attach(one)
    one.end()


@habits("what cannot work with torch's own wrappers", real="only", case=OF_REAL_RANKS)
def wrappers_of_torch_are_refused_on_every_rank(one: Rank, case: str) -> None:
    what_cannot_work_is_refused_on_every_rank(one, case)


# ---- tensors ---------------------------------------------------------------------------------------------------------


def _with_buffer(make: Callable[[], torch.Tensor]) -> Callable[[], nn.Module]:
    def module() -> nn.Module:
        model = nn.Sequential(nn.Linear(8, 4))
        model[0].register_buffer("table", make())
        return model

    return module


def _on_meta() -> nn.Module:
    with torch.device("meta"):
        return nn.Sequential(nn.Linear(8, 4))


def _sparse_parameter() -> nn.Module:
    model = nn.Linear(8, 4)
    model.adjacency = nn.Parameter(torch.eye(5).to_sparse())
    return model


class _TwoParts(torch.Tensor):
    """A tensor that is made of another one, as those of quantisation libraries are."""

    @staticmethod
    def __new__(cls: Any, part: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, part.shape, dtype=part.dtype)

    def __init__(self, part: torch.Tensor) -> None:
        self.part = part

    def __tensor_flatten__(self) -> Any:
        return ["part"], None

    @staticmethod
    def __tensor_unflatten__(inner: Any, *_: Any) -> Any:
        return _TwoParts(inner["part"])

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.ops.aten.detach.default:
            return _TwoParts(args[0].part)
        raise TypeError(f"a tensor of two parts cannot be used in {function}")


UNTAKABLE: dict[str, tuple[Callable[[], nn.Module], list[str]]] = {
    "lazy": (lambda: nn.Sequential(nn.LazyLinear(4)), ["parameter 0.weight", "lazy", "one batch"]),
    "lazy buffer": (
        lambda: nn.Sequential(nn.Linear(8, 4), nn.LazyBatchNorm1d(affine=False)),
        ["buffer 1.running_mean", "lazy"],
    ),
    "meta": (_on_meta, ["parameter 0.weight", "meta", "to_empty"]),
    "meta buffer": (_with_buffer(lambda: torch.zeros(3, device="meta")), ["buffer 0.table", "meta"]),
    "script": (lambda: torch.jit.script(nn.Sequential(nn.Linear(8, 4))), ["TorchScript"]),
    "traced": (lambda: torch.jit.trace(nn.Linear(8, 4), torch.zeros(1, 8)), ["TorchScript"]),
    "coo buffer": (_with_buffer(lambda: torch.eye(5).to_sparse()), ["buffer 0.table", "sparse_coo", "dense"]),
    "csr buffer": (_with_buffer(lambda: torch.eye(5).to_sparse_csr()), ["buffer 0.table", "sparse_csr"]),
    "jagged buffer": (
        _with_buffer(lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)], layout=torch.jagged)),
        ["buffer 0.table", "jagged"],
    ),
    "sparse parameter": (_sparse_parameter, ["parameter adjacency", "sparse_coo"]),
    "quantised buffer": (
        _with_buffer(lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)),
        ["buffer 0.table", "quantised", "qint8"],
    ),
    "subclass": (_with_buffer(lambda: _TwoParts(torch.zeros(3))), ["buffer 0.table", "_TwoParts"]),
    "inference": (_with_buffer(torch.inference_mode()(lambda: torch.zeros(3))), ["buffer 0.table", "inference_mode"]),
}


def _hooked(model: nn.Module) -> bool:
    made = [part for part in model.modules() if not hasattr(part, "cls_to_become")]  # not those that are still lazy
    return any(part._forward_pre_hooks or part._forward_hooks for part in made)


@habits("lazy layers, quantisation, sparse tables", real="only", case=UNTAKABLE)
def a_tensor_that_no_exchange_can_take_is_named_and_nothing_is_left(one: Rank, case: str) -> None:
    make, words = UNTAKABLE[case]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, that what it makes here is a beta or deprecated
        model = make()
    threads = threading.active_count()
    for _ in range(2):
        with refused(*words):
            one.attach(model, scheme="topk")
        assert not _hooked(model)
        assert threads == threading.active_count()
