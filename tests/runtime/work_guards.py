"""What the pool's ranks run: models, optimizers and states with which an exchange would be wrong without an error."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from runtime.models import build
from runtime.work_attach import SPARSE, Options, same_on_all_ranks, sgd
from torch import nn

import ssfx
from ssfx.core.errors import ConfigError


def error_of(work: Callable[[], Any], kind: type[Exception] = ConfigError) -> str:
    try:
        work()
    except kind as error:
        return str(error)
    return ""


# ---- parameters and buffers that cannot be exchanged ---------------------------------------------------------------


def _with_buffer(make: Callable[[], torch.Tensor]) -> Callable[[], nn.Module]:
    def module() -> nn.Module:
        model = nn.Sequential(nn.Linear(8, 4))
        model[0].register_buffer("table", make())
        return model

    return module


def _on_meta() -> nn.Module:
    with torch.device("meta"):
        return nn.Sequential(nn.Linear(8, 4))


def _meta_buffer() -> torch.Tensor:
    return torch.zeros(3, device="meta")


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


UNTAKABLE: dict[str, Callable[[], nn.Module]] = {
    "lazy": lambda: nn.Sequential(nn.LazyLinear(4)),
    "lazy buffer": lambda: nn.Sequential(nn.Linear(8, 4), nn.LazyBatchNorm1d(affine=False)),
    "meta": _on_meta,
    "meta buffer": _with_buffer(_meta_buffer),
    "script": lambda: torch.jit.script(nn.Sequential(nn.Linear(8, 4))),
    "traced": lambda: torch.jit.trace(nn.Linear(8, 4), torch.zeros(1, 8)),
    "coo buffer": _with_buffer(lambda: torch.eye(5).to_sparse()),
    "csr buffer": _with_buffer(lambda: torch.eye(5).to_sparse_csr()),
    "jagged buffer": _with_buffer(
        lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)], layout=torch.jagged)
    ),
    "sparse parameter": _sparse_parameter,
    "quantised buffer": _with_buffer(lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)),
    "subclass": _with_buffer(lambda: _TwoParts(torch.zeros(3))),
    "inference": _with_buffer(torch.inference_mode()(lambda: torch.zeros(3))),
}


def _lazy(part: nn.Module) -> bool:
    return hasattr(part, "cls_to_become")


# ---- optimizers -----------------------------------------------------------------------------------------------------


def _loss_with_weights(group: Any, rank: int, case: str) -> None:
    torch.manual_seed(0)
    net, weights = nn.Linear(8, 6), nn.Linear(6, 5, bias=False)
    every = [*net.parameters(), *weights.parameters()]
    if case == "named":
        optimizer = sgd([*net.named_parameters("net"), *weights.named_parameters("criterion")])
    elif case == "later":
        optimizer = sgd(net.parameters())
    else:
        optimizer = sgd(every)
    sync = ssfx.attach(net, optimizer, process_group=group, **SPARSE)
    before = weights.weight.detach().clone()
    try:
        for step in range(3):
            if case == "later" and step == 1:
                optimizer.add_param_group({"params": list(weights.parameters())})
            x = torch.randn(4, 8, generator=torch.Generator().manual_seed(100 * step + rank))
            optimizer.zero_grad()
            weights(net(x)).square().mean().backward()
            optimizer.step()
    finally:
        sync.detach()
        assert torch.equal(before, weights.weight)


def new_optimizer_that_cannot_be(group: Any, rank: int, world: int) -> str:
    model = build("mlp")
    sync = ssfx.attach(model, sgd(model.parameters(), 0.0), process_group=group, memory="dgc", **SPARSE)
    try:
        return error_of(sgd(model.parameters(), 0.9).step)
    finally:
        sync.detach()


# ---- what is said ---------------------------------------------------------------------------------------------------


@contextmanager
def heard() -> Iterator[list[str]]:
    """Collect what ssfx logs as a warning or worse."""
    lines: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("ssfx")
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)


def unused_rows(group: Any, rank: int, world: int, options: Options, table: str) -> dict[str, Any]:
    """Train with rows that no rank uses; return how far they and the others moved, and what attach said."""
    torch.manual_seed(0)
    kind = {"embedding": nn.Embedding, "bag": nn.EmbeddingBag}[table]
    model = nn.Sequential(kind(40, 16), nn.Linear(16, 8))
    start = model[0].weight.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with heard() as lines:
        sync = ssfx.attach(model, optimizer, process_group=group, **options)
    for step in range(4):
        optimizer.zero_grad()
        x = torch.randint(0, 10, (8, 2), generator=torch.Generator().manual_seed(10 * step + rank))
        model(x).square().sum().backward()
        optimizer.step()
    moved = (model[0].weight.detach() - start).abs().amax(1)
    sync.detach()
    return {
        "used": float(moved[:10].max()),
        "unused": float(moved[10:].max()),
        "lines": lines,
        "same": same_on_all_ranks(group, model),
        "sent": int(sync.stats()["sent_bytes"]),  # type: ignore[arg-type]
    }


def parted(group: Any, rank: int, world: int, options: Options, done: str) -> list[str]:
    """Train 11 steps, in the fifth of which rank 1 does something alone; return what ssfx said on this rank."""
    model = build("mlp")
    optimizer = sgd(model.parameters(), 0.9)
    sync = ssfx.attach(model, optimizer, process_group=group, **options)
    try:
        with heard() as lines:
            for step in range(11):
                optimizer.zero_grad()
                x = torch.randn(4, 20, generator=torch.Generator().manual_seed(10 * step + rank))
                model(x).square().mean().backward()
                alone = rank == 1 and step == 4
                if alone and done == "rate":
                    optimizer.param_groups[0]["lr"] /= 2
                if not (alone and done == "no step"):
                    optimizer.step()
                if alone and done == "change":
                    with torch.no_grad():
                        next(iter(model.parameters())).mul_(1.5)
        return [line for line in lines if "no longer equal" in line]
    finally:
        sync.detach()
