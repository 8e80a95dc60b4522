"""What a collective is: the exchange on a process group, and what it costs in messages and bytes, side by side."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ssfx.registry import Registry

if TYPE_CHECKING:
    import torch

    from ssfx.collectives.comm import Comm, Pending


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one rank puts on its outgoing link."""

    messages: int
    sent_bytes: int


class Collective(ABC):
    """One way for all ranks to combine their messages; stateless.

    `additive_only`: payloads are summed on the way, so compressors must be additive; the message comes back in place as
    the sum. Otherwise every rank receives all messages, one row per rank.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]
    additive_only: ClassVar[bool]
    variable: ClassVar[bool] = False
    """Ranks may send different numbers of bytes; sizes are exchanged first."""
    blocking: ClassVar[bool] = False
    """`start` itself waits for other ranks, because the exchange has several phases."""

    @abstractmethod
    def start(self, message: torch.Tensor, comm: Comm) -> Pending:
        """Issue the exchange of this rank's `message`; the result's `wait()` returns the sum or the [P, bytes] rows."""

    @abstractmethod
    def traffic(self, nbytes: int, world_size: int) -> Traffic:
        """Return what one rank sends when every rank contributes `nbytes`."""


collectives: Registry[Collective] = Registry("collective", "ssfx.collectives")
