"""What a test's work is given on real ranks, a process group, and on virtual ones, a Comm, and how it uses either."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ssfx
from ssfx.collectives.comm import Comm
from ssfx.collectives.torch_comm import TorchComm


class Ranks(Protocol):
    """Virtual or real ranks: `run(work, world, *args)` calls work(group, rank, world, *args) on each."""

    def run(self, work: Callable[..., Any], world: int, *args: Any) -> list[Any]: ...


class Virtual:
    """Virtual ranks of this process, which real ones are equal to in every bit (test_virtual_ranks.py)."""

    def run(self, work: Callable[..., Any], world: int, *args: Any) -> list[Any]:
        return ssfx.virtual_ranks(lambda rank, comm: work(comm, rank, world, *args), world)


def each_rank(world: int | None = None, by: str = "pool") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Each rank of `world`, or of the test's parameter `world`, calls the test with its group, rank and world first.

    What fails on a rank fails the test. `by` is the fixture that has the ranks; they find the test by its name.
    """

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        here = inspect.Parameter.KEYWORD_ONLY
        names = [name for name in inspect.signature(test).parameters if name not in ("group", "rank", "world")]

        def asked(*on_rank: Any, **given: Any) -> None:
            if on_rank:
                test(*on_rank)
                return
            ranks = given[by]
            run = ranks if callable(ranks) else ranks.run
            run(asked, given["world"] if world is None else world, *(given[name] for name in names))

        for name in ("__name__", "__qualname__", "__module__", "__doc__"):
            setattr(asked, name, getattr(test, name))
        wanted = [by, *names, *(["world"] if world is None else [])]
        asked.__signature__ = inspect.Signature([inspect.Parameter(name, here) for name in wanted])  # type: ignore
        return asked

    return decorate


def comm_of(group: Any) -> Comm:
    """Return a Comm for exchanges of the test's own."""
    return group if isinstance(group, Comm) else TorchComm(group)


def among(group: Any) -> dict[str, Any]:
    """Return the option of ssfx.attach."""
    return {"comm" if isinstance(group, Comm) else "process_group": group}


def add_up(tensor: torch.Tensor, group: Any) -> None:
    """`tensor` is the sum over ranks afterwards."""
    comm_of(group).all_reduce(tensor).wait()


def is_rank_0s(tensor: torch.Tensor, group: Any) -> bool:
    """Return whether rank 0 has the very same numbers."""
    first = tensor.detach().clone()
    comm_of(group).broadcast(first).wait()
    return torch.equal(first, tensor.detach())


class Averaged(nn.Module):
    """After each backward pass gradients are the mean over ranks, as DistributedDataParallel leaves them."""

    def __init__(self, module: nn.Module, comm: Comm) -> None:
        super().__init__()
        self.module, self._comm, self._asked = module, comm, False
        for p in module.parameters():
            if p.requires_grad:
                p.register_post_accumulate_grad_hook(self._ask)

    def forward(self, *inputs: Any, **options: Any) -> Any:
        return self.module(*inputs, **options)

    def _ask(self, _: torch.Tensor) -> None:
        if not self._asked:
            self._asked = True
            torch.autograd.Variable._execution_engine.queue_callback(self._average)

    def _average(self) -> None:
        self._asked = False
        for p in self.module.parameters():
            if p.grad is not None:
                self._comm.all_reduce(p.grad).wait()
                p.grad /= self._comm.world_size


def ddp(module: nn.Module, group: Any) -> nn.Module:
    """Return `module` wrapped in torch's DDP, or, on virtual ranks, in what does the same."""
    return Averaged(module, group) if isinstance(group, Comm) else DistributedDataParallel(module, process_group=group)


_users: Counter[tuple[type, str]] = Counter()
_originals: dict[tuple[type, str], Any] = {}


@contextmanager
def replaced(owner: type, name: str, by: Callable[..., Any]) -> Iterator[None]:
    """A method of a class is another one until the last rank of this process that asked for it has left."""
    key = (owner, name)
    if not _users[key]:
        _originals[key] = getattr(owner, name)
        setattr(owner, name, by)
    _users[key] += 1
    try:
        yield
    finally:
        _users[key] -= 1
        if not _users[key]:
            setattr(owner, name, _originals[key])
