"""TorchComm: exchanges by torch.distributed, the only place that calls it for gradients.

A process group takes the tag of a collective from a counter when it is issued, so all ranks must issue the same
operations in the same order from one thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from ssfx.collectives.comm import LOOK_EVERY, Comm, Notes, Pending
from ssfx.core import accelerator
from ssfx.core.errors import RunError
from ssfx.core.lazy import torch

_log = logging.getLogger("ssfx")
_POLL_S = 0.02
LONG_S = 30.0
"""Seconds after which a rank that waits for others to attach says so."""
_DEFAULT = timedelta(minutes=30)


class _Watched:
    """A work of gloo whose `wait` calls `look` once a second, so that it ends when a peer will never come."""

    def __init__(self, work: Any, look: Callable[[], None]) -> None:
        self._work, self._look = work, look

    def wait(self) -> None:
        while True:
            try:
                self._work.wait(LOOK_EVERY)
            except RuntimeError:
                ended = self._work.is_completed()
                self._look()  # a peer that said why it went is a better reason than its closed connection
                if not ended:
                    continue
                self._work.wait()  # raises what failed; torch 2.11 cannot return it
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
    """A group for exchanges alone, and the default group of its time."""

    group: Any
    world: Any
    free: bool = False


_made: dict[tuple[Any, int], list[_Own]] = {}
"""By the group that they are parts of, and their ranks (None, 0: of all), in the order in which all ranks made them.
Which are free differs by rank for a while: an exchange that was dropped is let go when Python collects garbage."""


@contextmanager
def _said_while_waiting(rank: int) -> Iterator[None]:
    """A line in the log if the block takes long: other ranks then train on alone, and this one would say nothing."""
    line = "rank %d has waited %g s for all ranks to call ssfx.attach; a script calls it on every rank"
    timer = threading.Timer(LONG_S, _log.warning, (line, rank, LONG_S))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # its thread ends at once, and nothing is left behind


def _own_group(device: torch.device, of: Any = None, ranks: list[int] | None = None) -> _Own:
    """Return a group that is free on every rank, or a new one; all ranks of group `of` call it together."""
    import torch.distributed as dist

    world = dist.group.WORLD
    if any(one.world is not world for made in _made.values() for one in made):
        _made.clear()  # torch.distributed was shut down and set up again
    made = _made.setdefault((of, len(ranks or ())), [])
    if made:
        free = torch.tensor([one.free for one in made], dtype=torch.int32, device=device)
        dist.all_reduce(free, op=dist.ReduceOp.MIN, group=of)
        for one, everywhere in zip(made, free.tolist(), strict=True):
            if everywhere:
                one.free = False
                return one
    apart = ranks is not None
    made.append(_Own(dist.new_group(ranks, _timeout(world, device), use_local_synchronization=apart), world))
    return made[-1]


def _timeout(world: Any, device: torch.device) -> timedelta | None:
    """Return how long the script lets its exchanges wait where that is more than torch's default for a new group."""
    waits = _waits(world, device)
    return waits if waits is not None and waits > _DEFAULT else None


def _waits(group: Any, device: torch.device) -> timedelta | None:
    """Return how long the exchanges of a group wait; None of a backend that says nothing."""
    try:
        waits: timedelta = group._get_backend(device).options._timeout
    except (AttributeError, RuntimeError):
        return None
    return waits


def _through_host(device: torch.device, group: Any) -> bool:
    """True where messages between two ranks go by gloo, which takes the address of a tensor for one of the host."""
    import torch.distributed as dist

    return not accelerator.host_reads(device) and f"{device.type}:gloo" in dist.get_backend_config(group)


class StoreNotes(Notes):
    """Notes in the store in which the ranks met."""

    def __init__(self) -> None:
        from torch.distributed import HashStore, distributed_c10d, is_initialized  # type: ignore[attr-defined]

        # One rank needs no process group.
        store: Any = distributed_c10d._get_default_store() if is_initialized() else HashStore()
        self._store = store
        self.timeout_s = float(store.timeout.total_seconds())

    def write(self, key: str, text: str) -> None:
        """Every rank can read `text` from now on."""
        self._store.set(key, text)

    def write_first(self, key: str, text: str) -> None:
        """As `write`, unless there is a note."""
        self._store.compare_set(key, "", text)

    def read(self, key: str) -> str | None:
        """Return the note, None if there is none; RunError if the store is gone."""
        try:
            return self._store.get(key).decode() if self._store.check([key]) else None
        except RuntimeError as error:  # torch's DistError is one
            first = str(error).splitlines()[0]
            raise RunError(
                f"the store where the ranks met is gone, and with it rank 0 or the launcher ({first})"
            ) from None

    def pause(self) -> None:
        """Wait for a moment."""
        time.sleep(_POLL_S)


class TorchComm(Comm):
    """A rank of a process group.

    For all ranks (`group` None) the group is one of its own, so that collectives of the model (SyncBatchNorm) or of the
    script cannot mix with the exchange; it is used again after `release`, never closed: a peer may still be reading. A
    group that is given is used as it is and must be left to the exchange during backward. One rank alone needs no
    group.
    """

    def __init__(self, group: Any = None, device: torch.device | None = None) -> None:
        import torch.distributed as dist

        self._dist = dist
        up = dist.is_initialized()
        super().__init__(dist.get_rank(group) if up else 0, dist.get_world_size(group) if up else 1, device, group)
        with _said_while_waiting(self.rank):
            self._own = _own_group(self.device) if group is None and self.world_size > 1 else None
        if self._own is not None:
            self.group = self._own.group
        self._through_host = self.world_size > 1 and _through_host(self.device, self.group)
        if self.world_size > 1:
            own, world = (_waits(one, self.device) for one in (self.group or dist.group.WORLD, dist.group.WORLD))
            self.timeout_s = own.total_seconds() if own is not None else self.timeout_s
            self.others_s = world.total_seconds() if world is not None else self.others_s

    @property
    def takes_shorter(self) -> bool:
        """Gloo fills a part of the tensor; NCCL must know the length."""
        return not accelerator.queued(self.device)

    @property
    def notes(self) -> Notes:
        """Notes in the store in which the ranks met."""
        return StoreNotes()

    def part(self, size: int) -> Comm:
        """Return a Comm of this rank and its neighbours, by a group of their own."""
        dist, first = self._dist, self.rank // size * size
        ranks = [dist.get_global_rank(self.group, rank) for rank in range(first, first + size)]
        own = _own_group(self.device, self.group, ranks)
        made = TorchComm(own.group, self.device)
        made.first, made._own = first, own
        return made

    def release(self) -> None:
        """Give a group of its own back for the next Comm, and stop checking for peers; nothing may be under way."""
        super().release()
        if self._own is not None:
            self._own.free = True
            self._own = None

    def _all_reduce(self, tensor: torch.Tensor, op: str) -> Pending:
        reduce_op = self._dist.ReduceOp.MAX if op == "max" else self._dist.ReduceOp.SUM
        work = self._dist.all_reduce(tensor, op=reduce_op, group=self.group, async_op=True)
        return Pending(self._watched(work), tensor)

    def _all_gather(self, tensor: torch.Tensor) -> Pending:
        out = torch.empty(self.world_size * tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        # torch 2.14 gave it a new name and warns at every call of the old one, which is all that earlier ones have.
        gather = getattr(self._dist, "all_gather_single", None) or self._dist.all_gather_into_tensor
        work = gather(out, tensor, group=self.group, async_op=True)
        return Pending(self._watched(work), out.view(self.world_size, -1))

    def _reduce_scatter(self, tensor: torch.Tensor) -> Pending:
        out = torch.empty(tensor.numel() // self.world_size, dtype=tensor.dtype, device=tensor.device)
        scatter = getattr(self._dist, "reduce_scatter_single", None) or self._dist.reduce_scatter_tensor
        return Pending(self._watched(scatter(out, tensor, group=self.group, async_op=True)), out)

    def _broadcast(self, tensor: torch.Tensor, source: int) -> Pending:
        group_source = self._dist.get_global_rank(self.group, source) if self.group is not None else source
        work = self._dist.broadcast(tensor, group_source, group=self.group, async_op=True)
        return Pending(self._watched(work), tensor)

    def _all_to_all(self, rows: torch.Tensor) -> Pending:
        out = torch.empty_like(rows)
        work = self._dist.all_to_all_single(out.view(-1), rows.view(-1), group=self.group, async_op=True)
        return Pending(self._watched(work), out)

    def _swap(self, sends: Mapping[int, torch.Tensor], receives: Mapping[int, torch.Tensor]) -> Pending:
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
