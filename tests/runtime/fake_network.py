"""Ranks that exist only in bookkeeping: torch's fake process group, with what NCCL asks of collectives checked.

One process is one rank of any number, and nothing travels: a sum is its own tensor, a gather holds its own message once
for each rank (of positions, zeros for the others), messages between two ranks are zeros. `Network.broken` says which of
NCCL's rules a call broke, `Network.calls` what was issued, in order, so that ranks can be compared.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist

from ssfx.runtime import lifetime, planner

fake_pg = pytest.importorskip(
    "torch.testing._internal.distributed.fake_pg", reason="this torch has no fake process group where 2.14 has it"
)

NCCL_DTYPES = {
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
}
"""What torch hands to NCCL as it is. It knows no 16-bit integers; of booleans, sums would be something else."""
GATHER = "all_gather_single" if hasattr(dist, "all_gather_single") else "all_gather_into_tensor"


@dataclass
class Network:
    """What a rank issues; `stream` names the stream that the calling thread works on."""

    stream: Callable[[], str] = lambda: "host"
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    streams: dict[Any, set[str]] = field(default_factory=dict)
    """By process group, since they were last cleared."""
    threads: set[str] = field(default_factory=set)
    _busy: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def _issuing(self, group: Any, *call: Any) -> Iterator[None]:
        if not self._busy.acquire(blocking=False):
            self.broken.append(f"{call[0]}: two threads issue at a time")
            yield
            return
        try:
            self.calls.append(call)
            self.streams.setdefault(group, set()).add(self.stream())
            self.threads.add(threading.current_thread().name)
            yield
        finally:
            self._busy.release()

    def _check(self, what: str, *tensors: torch.Tensor) -> None:
        for tensor in tensors:
            if tensor.dtype not in NCCL_DTYPES:
                self.broken.append(f"{what}: NCCL has no {tensor.dtype}")
            if not tensor.is_contiguous():
                self.broken.append(f"{what}: {tuple(tensor.shape)} is not contiguous")

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Inside, what this process issues is noted, and answered as ranks would that all do the same."""
        with ExitStack() as stack:
            for name in ("all_reduce", GATHER, "broadcast", "batch_isend_irecv"):
                real = getattr(dist, name)
                stand_in = getattr(self, "_gather" if name == GATHER else f"_{name}")
                stack.enter_context(mock.patch.object(dist, name, _with(stand_in, real)))
            for module in (lifetime, planner):  # what rank 0 decides, every rank would decide
                stack.enter_context(mock.patch.object(module, "agree", lambda comm, make: make()))
            yield

    def _all_reduce(self, real: Any, tensor: torch.Tensor, *, group: Any = None, **options: Any) -> Any:
        self._check("all_reduce", tensor)
        with self._issuing(group, "all_reduce", tensor.dtype, tensor.numel(), str(options.get("op"))):
            return real(tensor, group=group, **options)

    def _gather(self, real: Any, out: torch.Tensor, tensor: torch.Tensor, *, group: Any = None, **options: Any) -> Any:
        self._check("all_gather", tensor, out)
        world = dist.get_world_size(group)
        if out.dtype != tensor.dtype or out.numel() != world * tensor.numel():
            self.broken.append(f"all_gather: {tuple(out.shape)} is no room for {world} times {tuple(tensor.shape)}")
        with self._issuing(group, "all_gather", tensor.dtype, tensor.numel()):
            work = real(out, tensor, group=group, **options)
        rows = out.view(world, -1)
        if tensor.dtype == torch.int32:  # positions, of which other ranks have others
            rows.zero_()
            rows[dist.get_rank(group)] = tensor
        else:
            rows.copy_(tensor.view(1, -1))
        return work

    def _broadcast(self, real: Any, tensor: torch.Tensor, source: int, *, group: Any = None, **options: Any) -> Any:
        self._check("broadcast", tensor)
        with self._issuing(group, "broadcast", tensor.dtype, tensor.numel(), source):
            return real(tensor, source, group=group, **options)

    def _batch_isend_irecv(self, real: Any, ops: list[Any]) -> Any:
        tensors = [op.tensor for op in ops]
        self._check("swap", *tensors)
        groups = {op.group for op in ops}
        pairs = [(op.op is dist.isend, op.peer) for op in ops]
        if len(groups) > 1 or len(set(pairs)) < len(pairs):
            self.broken.append("swap: several groups, or several messages between two ranks, in one batch")
        if dist.get_rank() in {op.peer for op in ops}:
            self.broken.append("swap: a message to oneself")
        if not any(call[0] != "swap" for call in self.calls):
            self.broken.append("swap: NCCL wants a collective of all ranks before the first message between two")
        with self._issuing(*groups, "swap"):
            works = real(ops)
        for op in ops:
            if op.op is not dist.isend:
                op.tensor.zero_()  # a count of nothing, whatever it is
        return works


def _with(stand_in: Any, real: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: stand_in(real, *args, **kwargs)


@contextmanager
def one_of(world: int, rank: int) -> Iterator[None]:
    """This process is rank `rank` of `world`, until the block ends."""
    dist.init_process_group("fake", rank=rank, world_size=world, store=dist.HashStore())
    try:
        yield
    finally:
        dist.destroy_process_group()
