"""Comm: the only place that calls torch.distributed for gradients; it counts what it sends.

A process group takes the tag of a collective from a counter when it is issued, so all ranks must issue the same
operations in the same order from one thread. The runtime's exchange queue guarantees that; nothing else may use it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from ssfx.collectives.primitives import Traffic, to_peers, traffic
from ssfx.core import accelerator
from ssfx.core.lazy import torch


@dataclass(slots=True)
class Pending:
    """An exchange under way: `wait()` blocks until it is done and returns its result."""

    work: Any
    result: torch.Tensor
    finish: Callable[[torch.Tensor], torch.Tensor] | None = None

    def wait(self) -> torch.Tensor:
        """Return the result once the exchange has ended; raises the transport's error if a peer is gone."""
        if self.work is not None:
            self.work.wait()
        return self.finish(self.result) if self.finish else self.result

    def done(self) -> bool:
        """True when `wait()` would not block on the transport."""
        return self.work is None or bool(self.work.is_completed())


class _Watched:
    """A work of gloo whose `wait` calls `look` once a second, so that it ends when a peer will never come."""

    def __init__(self, work: Any, look: Callable[[], None]) -> None:
        self._work, self._look = work, look

    def wait(self) -> None:
        while True:
            try:
                self._work.wait(LOOK_EVERY)
            except RuntimeError:
                if self._work.is_completed() and self._work.exception() is not None:
                    self._look()  # a peer that said why it went is a better reason than its closed connection
                    raise
                self._look()
            else:
                return

    def is_completed(self) -> bool:
        return bool(self._work.is_completed())


class _All:
    """Several works as one."""

    def __init__(self, works: Iterable[Any]) -> None:
        self._works = list(works)

    def wait(self) -> None:
        for work in self._works:
            work.wait()

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self._works)


@dataclass(slots=True, eq=False)
class _Own:
    """A group of all ranks for exchanges alone, and the default group that it is of."""

    group: Any
    world: Any
    free: bool = False


_made: list[_Own] = []
"""In the order in which all ranks made them. Which are free differs by rank for a while: an exchange that was dropped
is let go when Python collects garbage."""
LOOK_EVERY = timedelta(seconds=1)
"""Time after which a rank that waits for its peers looks whether they still come."""


def _own_group(device: torch.device) -> _Own:
    """Return a group that is free on every rank, or a new one; all ranks call it together."""
    import torch.distributed as dist

    world = dist.group.WORLD
    if _made and _made[0].world is not world:  # torch.distributed was shut down and set up again
        _made.clear()
    if _made:
        free = torch.tensor([one.free for one in _made], dtype=torch.int32, device=device)
        dist.all_reduce(free, op=dist.ReduceOp.MIN)
        for one, everywhere in zip(_made, free.tolist(), strict=True):
            if everywhere:
                one.free = False
                return one
    _made.append(_Own(dist.new_group(), world))
    return _made[-1]


def _through_host(device: torch.device, group: Any) -> bool:
    """True where messages between two ranks go by gloo, which takes the address of a tensor for one of the host."""
    import torch.distributed as dist

    return not accelerator.host_reads(device) and f"{device.type}:gloo" in dist.get_backend_config(group)


def _see_nothing() -> None:
    """Look nowhere: nobody said that ranks tell each other anything."""


class Comm:
    """A process group with counters: operations issued, bytes this rank contributed, messages and bytes it sent.

    What a library's own collective sends is counted by the formulas of `primitives`, point-to-point messages as they
    are.

    For all ranks (`group` None) the group is one of its own, so that collectives of the model (SyncBatchNorm) or of the
    script cannot mix with the exchange; it is used again after `release`, never closed: a peer may still be reading. A
    group that is given is used as it is and must be left to the exchange during backward. One rank alone needs no
    group: its sum is its own tensor, its gather a copy.
    """

    def __init__(self, group: Any = None, device: torch.device | None = None) -> None:
        import torch.distributed as dist

        self._dist = dist
        self.device = device if device is not None else torch.device("cpu")
        self.rank: int = dist.get_rank(group) if dist.is_initialized() else 0
        self.world_size: int = dist.get_world_size(group) if dist.is_initialized() else 1
        self._own = _own_group(self.device) if group is None and self.world_size > 1 else None
        self.group = self._own.group if self._own is not None else group
        self._through_host = self.world_size > 1 and _through_host(self.device, self.group)
        self.calls = 0
        self.contributed_bytes = 0
        self.sent = Traffic(0, 0)
        self.look: Callable[[], None] = _see_nothing
        """Raises if a peer will never come; called about once a second while this rank waits."""

    def release(self) -> None:
        """Give a group of its own back for the next Comm, and look for nobody any more; nothing may be under way."""
        self.look = _see_nothing
        if self._own is not None:
            self._own.free = True
            self._own = None

    def all_reduce(self, tensor: torch.Tensor, *, op: str = "sum") -> Pending:
        """Issue an in-place all-reduce of `tensor`; op is "sum" or "max"."""
        self.count("all_reduce", tensor)
        if self.world_size == 1:
            return Pending(None, tensor)
        reduce_op = self._dist.ReduceOp.MAX if op == "max" else self._dist.ReduceOp.SUM
        return Pending(
            self._watched(self._dist.all_reduce(tensor, op=reduce_op, group=self.group, async_op=True)), tensor
        )

    def all_gather(self, tensor: torch.Tensor) -> Pending:
        """Issue an all-gather of equal-size flat tensors; the result has shape [world_size, numel]."""
        self.count("all_gather", tensor)
        if self.world_size == 1:
            return Pending(None, tensor.clone().view(1, -1))
        out = torch.empty(self.world_size * tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        # torch 2.14 gave it a new name and warns at every call of the old one, which is all that earlier ones have.
        gather = getattr(self._dist, "all_gather_single", None) or self._dist.all_gather_into_tensor
        work = gather(out, tensor, group=self.group, async_op=True)
        return Pending(self._watched(work), out.view(self.world_size, -1))

    def reduce_scatter(self, tensor: torch.Tensor) -> Pending:
        """Issue a sum of flat tensors over ranks, of which each gets its part; the parts are of equal size."""
        self.count("reduce_scatter", tensor)
        out = torch.empty(tensor.numel() // self.world_size, dtype=tensor.dtype, device=tensor.device)
        if self.world_size == 1:
            return Pending(None, out.copy_(tensor))
        scatter = getattr(self._dist, "reduce_scatter_single", None) or self._dist.reduce_scatter_tensor
        return Pending(self._watched(scatter(out, tensor, group=self.group, async_op=True)), out)

    def broadcast(self, tensor: torch.Tensor, source: int = 0) -> Pending:
        """Issue a broadcast of `tensor` from group rank `source`, in place."""
        self.count("broadcast", tensor, (self.rank - source) % self.world_size)
        if self.world_size == 1:
            return Pending(None, tensor)
        group_source = self._dist.get_global_rank(self.group, source) if self.group is not None else source
        return Pending(
            self._watched(self._dist.broadcast(tensor, group_source, group=self.group, async_op=True)), tensor
        )

    def all_to_all(self, rows: torch.Tensor) -> Pending:
        """Issue one message to every rank, row r of `rows` [world_size, n] to rank r; the result has rows by sender."""
        self.count("all_to_all", rows)
        out = torch.empty_like(rows)
        work = self._dist.all_to_all_single(out.view(-1), rows.view(-1), group=self.group, async_op=True)
        return Pending(self._watched(work), out)

    def swap(self, sends: Mapping[int, torch.Tensor], receives: Mapping[int, torch.Tensor]) -> Pending:
        """Issue one message to each group rank of `sends` and fill each tensor of `receives` from its group rank.

        Tensors are contiguous; both sides know the sizes, and empty tensors are not sent. All messages are posted at
        once, so ranks may list their peers in any order without blocking each other.
        """
        dist = self._dist
        filled = receives
        if self._through_host:
            sends = {peer: tensor.cpu() for peer, tensor in sends.items()}
            receives = {peer: torch.empty_like(tensor, device="cpu") for peer, tensor in receives.items()}
        ops = []
        order = [(self.rank + s) % self.world_size for s in range(1, self.world_size)]
        for operation, tensors, peers in ((dist.irecv, receives, order[::-1]), (dist.isend, sends, order)):
            for peer in peers:
                if peer in tensors and tensors[peer].numel():
                    target = dist.get_global_rank(self.group, peer) if self.group is not None else peer
                    ops.append(dist.P2POp(operation, tensors[peer], target, group=self.group))
        sizes = [0] * self.world_size
        for peer, tensor in sends.items():
            sizes[peer] = tensor.numel() * tensor.element_size()
        self._add(to_peers(sizes, self.rank), sum(sizes))
        works = dist.batch_isend_irecv(ops) if ops else []
        nothing = torch.empty(0, dtype=torch.float32)

        def land(done: torch.Tensor) -> torch.Tensor:
            for peer, tensor in filled.items():
                tensor.copy_(receives[peer])
            return done

        return Pending(_All(works), nothing, land if self._through_host else None)

    def _watched(self, work: Any) -> Any:
        # Work on a GPU is waited for by its stream; messages between two ranks cannot be waited for with a limit.
        return work if accelerator.queued(self.device) or work is None else _Watched(work, self.look)

    def count(self, primitive: str, tensor: torch.Tensor, rank: int | None = None) -> None:
        """Count a collective to which this rank contributes `tensor`; `rank`: as seen from a broadcast's source."""
        item_bytes = tensor.element_size()
        nbytes = tensor.numel() * item_bytes
        own = self.rank if rank is None else rank
        self._add(traffic(primitive, nbytes, self.world_size, own, item_bytes), nbytes)

    def _add(self, sent: Traffic, contributed_bytes: int) -> None:
        self.calls += 1
        self.contributed_bytes += contributed_bytes
        self.sent += sent
