"""Comm: what ranks exchange, counted; `torch_comm` does it by torch.distributed, `local_comm` inside one process.

Operations of different ranks belong together by the order in which each rank issues them, so all ranks must issue the
same ones in the same order. The runtime's exchange queue guarantees that; nothing else may use its Comm.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

from ssfx.collectives.primitives import Traffic, to_peers, traffic
from ssfx.core.lazy import torch

LOOK_EVERY = timedelta(seconds=1)
"""Time after which a rank that waits for its peers looks whether they still come."""


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


class Notes(ABC):
    """Texts by key that every rank can write and read beside the exchanges."""

    timeout_s: float
    """How long a rank waits for another one's note."""

    @abstractmethod
    def write(self, key: str, text: str) -> None:
        """Every rank can read `text` from now on."""

    @abstractmethod
    def write_first(self, key: str, text: str) -> None:
        """As `write`, unless there is a note."""

    @abstractmethod
    def read(self, key: str) -> str | None:
        """Return the note, None if there is none; RunError if notes can be read no more."""

    @abstractmethod
    def pause(self) -> None:
        """Let other ranks go on for a moment, before this one reads again."""


def _see_nothing() -> None:
    """Do nothing: no liveness check was installed."""


class Comm(ABC):
    """One rank of an exchange, with counters: operations issued, bytes contributed, messages and bytes sent.

    What a library's own collective sends is counted by the formulas of `primitives`, point-to-point messages as they
    are; so are exchanges in memory. One rank alone sends nothing: its sum is its own tensor, its gather a copy.
    """

    serial: ClassVar[bool] = False
    """True where the rank's own thread has to do everything, on one stream: ranks take turns."""

    def __init__(self, rank: int, world_size: int, device: torch.device | None, group: Any) -> None:
        self.rank, self.world_size = rank, world_size
        self.first = 0
        """Rank of the first one here among all of whom this is a `part`: errors name ranks by that."""
        self.device = device if device is not None else torch.device("cpu")
        self.group = group
        """What tells this exchange from others: torch's process group where there is one."""
        self.calls = 0
        self.contributed_bytes = 0
        self.sent = Traffic(0, 0)
        self.look: Callable[[], None] = _see_nothing
        """Raises if a peer will never come; called now and then while this rank waits."""
        self.timeout_s, self.others_s = math.inf, math.inf
        """How long an exchange waits for a peer before it fails, and so the script's own collectives."""

    @property
    @abstractmethod
    def takes_shorter(self) -> bool:
        """True where `swap` may receive a message that is shorter than the tensor for it."""

    @property
    @abstractmethod
    def notes(self) -> Notes:
        """What ranks tell each other beside their exchanges."""

    def of_model(self, device: torch.device) -> Comm:
        """Return a Comm of the same ranks for the exchange of one model on `device`; all ranks ask in one order."""
        return self

    @abstractmethod
    def part(self, size: int) -> Comm:
        """Return a Comm of this rank and its neighbours, `size` ranks that follow one another; all ranks ask."""

    def begins(self) -> None:  # noqa: B027  real ranks share nothing
        """Take note that this rank begins an exchange of a model."""

    def release(self) -> None:
        """Stop checking for peers; nothing may be under way."""
        self.look = _see_nothing

    def all_reduce(self, tensor: torch.Tensor, *, op: str = "sum") -> Pending:
        """Issue an in-place all-reduce of `tensor`; op is "sum" or "max"."""
        self.count("all_reduce", tensor)
        return Pending(None, tensor) if self.world_size == 1 else self._all_reduce(tensor, op)

    def all_gather(self, tensor: torch.Tensor) -> Pending:
        """Issue an all-gather of equal-size flat tensors; read-only result of shape [world_size, numel]."""
        self.count("all_gather", tensor)
        return Pending(None, tensor.clone().view(1, -1)) if self.world_size == 1 else self._all_gather(tensor)

    def reduce_scatter(self, tensor: torch.Tensor) -> Pending:
        """Issue a sum of flat tensors over ranks, of which each gets its part; the parts are of equal size."""
        self.count("reduce_scatter", tensor)
        return Pending(None, tensor.clone()) if self.world_size == 1 else self._reduce_scatter(tensor)

    def broadcast(self, tensor: torch.Tensor, source: int = 0) -> Pending:
        """Issue a broadcast of `tensor` from group rank `source`, in place."""
        self.count("broadcast", tensor, (self.rank - source) % self.world_size)
        return Pending(None, tensor) if self.world_size == 1 else self._broadcast(tensor, source)

    def all_to_all(self, rows: torch.Tensor) -> Pending:
        """Issue one message to every rank, row r of `rows` [world_size, n] to rank r; the result has rows by sender."""
        self.count("all_to_all", rows)
        return Pending(None, rows.clone()) if self.world_size == 1 else self._all_to_all(rows)

    def swap(self, sends: Mapping[int, torch.Tensor], receives: Mapping[int, torch.Tensor]) -> Pending:
        """Issue one message to each group rank of `sends` and fill each tensor of `receives` from its group rank.

        Tensors are contiguous, and empty ones are not sent. Both sides know the sizes; where `takes_shorter`, a message
        may be shorter than the tensor that it fills, whose rest is left as it was. All messages are posted at once, so
        ranks may list their peers in any order without blocking each other.
        """
        sizes = [0] * self.world_size
        for peer, tensor in sends.items():
            sizes[peer] = tensor.numel() * tensor.element_size()
        self._add(to_peers(sizes, self.rank), sum(sizes))
        return self._swap(sends, receives)

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

    # ---- how it is done; never asked of one rank alone --------------------------------------------------------------

    @abstractmethod
    def _all_reduce(self, tensor: torch.Tensor, op: str) -> Pending: ...

    @abstractmethod
    def _all_gather(self, tensor: torch.Tensor) -> Pending: ...

    @abstractmethod
    def _reduce_scatter(self, tensor: torch.Tensor) -> Pending: ...

    @abstractmethod
    def _broadcast(self, tensor: torch.Tensor, source: int) -> Pending: ...

    @abstractmethod
    def _all_to_all(self, rows: torch.Tensor) -> Pending: ...

    @abstractmethod
    def _swap(self, sends: Mapping[int, torch.Tensor], receives: Mapping[int, torch.Tensor]) -> Pending: ...
