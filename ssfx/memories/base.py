"""What a memory is: named float32 buffers per parameter, updated by one step that can still be rolled back.

Every buffer exists twice: `old` is the committed state, `new` is written by the step under way. The runtime swaps them
when the step is finite on all ranks and forgets `new` otherwise, so a rollback costs nothing and is exact.
Source: codec specification, section 3.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from ssfx.spec import Catalog

if TYPE_CHECKING:
    import torch

    from ssfx.compressors.base import Compressor, Context, Payload

State = Mapping[str, "torch.Tensor"]


class Memory(ABC):
    """Error feedback for one compressed segment; stateless itself, its state lives in the buffers it declares."""

    name: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]
    buffers: ClassVar[tuple[str, ...]]
    """Names of the float32 buffers per parameter; the first is what is handed to the compressor."""
    stateful: ClassVar[bool] = True
    """The buffers outlive the step; False for a memory that only needs a place to put the gradient."""
    feedback: ClassVar[bool] = True
    """What was not sent is sent later; needs a compressor with `error_feedback`."""

    @abstractmethod
    def accumulate(self, grad: torch.Tensor, old: State, new: State) -> None:
        """Write `new` from the flat gradient of one tensor (any float dtype) and `old`; `grad` is left unchanged."""

    @abstractmethod
    def sent(self, compressor: Compressor, payload: Payload, new: State, ctx: Context) -> None:
        """Take what the payload carries out of `new`; called once per segment after compression."""


memories: Catalog[Memory] = Catalog("memory", "ssfx.memories")
