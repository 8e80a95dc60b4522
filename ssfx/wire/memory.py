"""What a batch knows of the memory that gradients accumulate in: a call, and a form that kernels can do on the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import torch

    from ssfx.wire.payload import Context, Payload

State = Mapping[str, "torch.Tensor"]

READY, COPY, RESIDUAL, DGC = range(4)
"""How a tensor is accumulated: there already; the gradient; decay * old + gain * gradient; DGC's memory."""


class Form(NamedTuple):
    """How a memory accumulates, in a form that a kernel can do on the way; for DGC `decay` is the momentum.

    `clear`: what is sent leaves the first buffer, and nothing else happens, so that the kernel may do that too where
    values travel unrounded; of DGC's memory it leaves the second one, too.
    """

    kind: int
    decay: float = 0.0
    gain: float = 1.0
    clear: bool = False


class Accumulates(Protocol):
    """A memory, as far as a batch needs it; `ssfx.compressors.memories.base.Memory` is what memories derive from."""

    form: Form | None

    def accumulate(self, grad: torch.Tensor, old: State, new: State) -> None:
        """Write `new` from the flat gradient of one tensor and `old`."""

    def sent(self, compressor: Any, payload: Payload, new: State, ctx: Context) -> None:
        """Take what the payload carries out of `new`."""
