"""What a collective is: the exchange on a process group, and what it costs in messages and bytes, side by side."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING, Any, ClassVar

from ssfx.collectives.primitives import Traffic, traffic
from ssfx.core.spec import Catalog

if TYPE_CHECKING:
    import torch

    from ssfx.collectives.comm import Comm, Pending


@dataclass(frozen=True, slots=True)
class Load:
    """What one rank brings to an exchange, as planned.

    numel: elements of the lane. nbytes: bytes of this rank's payload. kept: elements that the payload selects, `numel`
    if it leaves nothing out. build_up: how many times as many all ranks select together, in [1, P]; None: P, because no
    two select the same.
    """

    numel: int
    nbytes: int
    kept: int
    world_size: int
    build_up: float | None = None

    def together(self, ranks: int) -> int:
        """Return how many elements so many ranks select, each counted once: `kept` times a power of their number."""
        if self.build_up is None or ranks == 1:
            return self.kept * ranks
        times: float = ranks ** (log(self.build_up) / log(self.world_size))
        return round(self.kept * times)

    @classmethod
    def dense(cls, nbytes: int, world_size: int) -> Load:
        """Return the load of `nbytes` of float32 values."""
        return cls(nbytes // 4, nbytes, nbytes // 4, world_size)


@dataclass(frozen=True, slots=True)
class Phase:
    """One step of an exchange: a primitive and the bytes that one rank contributes to it.

    `primitive` is a key of `Costs.exchange`, or "encode" or "decode" for compression on the way; then `size` counts
    elements. `inside`: only ranks of one node talk to each other. `times`: how often it happens, one after the other.
    """

    primitive: str
    size: float
    inside: bool = False
    times: int = 1


def merging(load: Load, entries: float) -> Phase:
    """Return the phase of adding so many received pairs of index and value into a vector.

    Decoding is counted in elements of the exchange, whose decoding takes the `kept` of every rank.
    """
    return Phase("decode", entries * load.numel / (max(1, load.kept) * load.world_size))


class Collective(ABC):
    """One way for all ranks to combine their messages; stateless except for its options.

    `additive_only`: payloads are summed on the way, so compressors must be additive; the message comes back in place as
    the sum. Otherwise every rank receives all messages, one row per rank. Collectives that add up selected elements are
    a kind of their own (`Reducer`).
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]
    options: Any
    """The frozen dataclass that the component was built with."""
    additive_only: ClassVar[bool]
    variable: ClassVar[bool] = False
    """Ranks may send different numbers of bytes; sizes are exchanged first."""
    blocking: ClassVar[bool] = False
    """`start` itself waits for other ranks, because the exchange has several phases."""

    def __init__(self, options: Any) -> None:
        self.options = options

    @abstractmethod
    def start(self, message: torch.Tensor, comm: Comm) -> Pending:
        """Issue the exchange of this rank's `message`; the result's `wait()` returns the sum or the [P, bytes] rows."""

    @abstractmethod
    def phases(self, load: Load) -> tuple[Phase, ...]:
        """Return the steps of the exchange when every rank brings `load`; what planners and simulators charge."""

    def traffic(self, load: Load) -> Traffic:
        """Return what rank 0 sends when every rank brings `load`: the sum over the phases."""
        total = Traffic(0, 0)
        for phase in self.phases(load):
            if phase.primitive not in ("encode", "decode"):
                sent = traffic(phase.primitive, round(phase.size), load.world_size)
                total += Traffic(phase.times * sent.messages, phase.times * sent.sent_bytes)
        return total


collectives: Catalog[Collective] = Catalog("collective", "ssfx.collectives")
