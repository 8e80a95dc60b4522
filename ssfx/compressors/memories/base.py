"""What a memory is: named float32 buffers per parameter, updated by one step that can still be rolled back.

Every buffer exists twice: `old` is the committed state, `new` is written by the step under way. The runtime swaps them
when the step is finite on all ranks and forgets `new` otherwise, so a rollback costs nothing and is exact.
Source: D-14, D-15.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar

from ssfx.compressors.base import Compressor, Context, Payload, compressors
from ssfx.compressors.kernels import Form
from ssfx.core.errors import ConfigError
from ssfx.core.lazy import torch
from ssfx.core.spec import Catalog

State = Mapping[str, "torch.Tensor"]


class Memory(ABC):
    """Error feedback for one compressed segment; stateless itself, its state lives in the buffers it declares."""

    name: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]
    options: Any
    """The frozen dataclass that the component was built with."""
    buffers: ClassVar[tuple[str, ...]]
    """Names of the float32 buffers per parameter; the first is what is handed to the compressor."""
    stateful: ClassVar[bool] = True
    """The buffers outlive the step; False for a memory that only needs a place to put the gradient."""
    feedback: ClassVar[bool] = True
    """What was not sent is sent later; needs a compressor with `error_feedback`."""
    needs_indices: ClassVar[bool] = False
    """`sent` looks at the payload's indices; needs a `sparse` compressor."""
    keeps_rest: ClassVar[bool] = False
    """What stays in the first buffer is what was not sent and nothing else, so a reducer may take out of it itself."""
    forbids_optimizer_momentum: ClassVar[bool] = False
    """The memory applies momentum itself, so an optimizer with momentum would apply it twice."""
    follows_rate: ClassVar[bool] = False
    """Residuals are rescaled when the learning rate changes; needs `rates.Rates` around every step."""
    form: Form | None = None
    """`accumulate` in the form that compiled kernels do on the way, if they know it."""
    dense_momentum: ClassVar[bool] = False
    """Gradients that are sent dense go through `dense_update` after they were averaged."""

    def __init__(self, options: Any) -> None:
        self.options = options

    @abstractmethod
    def accumulate(self, grad: torch.Tensor, old: State, new: State) -> None:
        """Write `new` from the flat gradient of one tensor (any float dtype) and `old`; `grad` is left unchanged."""

    @abstractmethod
    def sent(self, compressor: Compressor, payload: Payload, new: State, ctx: Context) -> None:
        """Take what the payload carries out of `new`; called once per segment after compression."""

    def dense_update(self, average: torch.Tensor, momentum: torch.Tensor) -> None:
        """Apply the memory's momentum to an averaged dense gradient, both in place; only with `dense_momentum`."""
        raise TypeError(f"memory {self.name} has no momentum for dense gradients")


OTHER_WORDS = {
    **dict.fromkeys(("ef", "ef21", "error_feedback", "feedback", "error", "residuals", "true"), "residual"),
    **dict.fromkeys(("off", "false", "no"), "none"),
}
memories: Catalog[Memory] = Catalog("memory", "ssfx.compressors.memories", OTHER_WORDS)


def check_chosen_memory(scheme: str, memory: Memory) -> None:
    """Raise ConfigError when a scheme that chooses compressors itself cannot use `memory`.

    It must suit every compressor and reducer that may be chosen, and tensors that are sent as they are.
    """
    if not memory.feedback or not memory.keeps_rest:
        raise ConfigError(
            f"scheme={scheme} with memory={memory.name}: it chooses compressors itself, some of which need residual "
            "error feedback and nothing else; use memory=residual, or name the compressor"
        )


def check_pair(memory: Memory, compressor: Compressor) -> None:
    """Raise ConfigError when `memory` would diverge, keep nothing or not work with `compressor` (D-14)."""
    pair = (
        f"memory={memories.canonical(memory.name, asdict(memory.options))} with "
        f"compressor={compressors.canonical(compressor.name, asdict(compressor.options))}"
    )
    if memory.feedback and compressor.lossless:
        raise ConfigError(f"{pair}: nothing is left out, so there is nothing to keep; use memory=none")
    if memory.feedback and not compressor.error_feedback:
        raise ConfigError(f"{pair}: the error of this compressor diverges when it is fed back; use memory=none")
    if memory.needs_indices and not compressor.sparse:
        raise ConfigError(f"{pair}: this memory needs to see which elements were sent; use memory=residual")
