"""DGC memory: momentum is applied before compression, so that an element sent late carries its whole momentum."""

from __future__ import annotations

from dataclasses import dataclass

from ssfx.compressors.base import Compressor, Context, Payload
from ssfx.compressors.kernels import DGC, NESTEROV, Form
from ssfx.compressors.memories.base import Memory, State, memories
from ssfx.core.lazy import torch


@dataclass(frozen=True)
class DGCMemoryOptions:
    """`momentum` in [0, 1); `nesterov` looks one step ahead; `masking` also clears the momentum of what was sent."""

    momentum: float = 0.9
    nesterov: bool = False
    masking: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must be in [0, 1), got {self.momentum}")


@memories.register(DGCMemoryOptions())
class DGCMemory(Memory):
    """u = m * u + g, v = v + u; v is compressed, and what is sent leaves v and, masked, u (D-16).

    Nesterov: u = m * (u + g), v = v + u + g. The optimizer must run without momentum.
    """

    name = "dgc"
    summary = "momentum correction: local momentum before compression, cleared where sent"
    source = "Lin et al. 2018; D-16"
    buffers = ("velocity", "momentum")
    needs_indices = True
    forbids_optimizer_momentum = True
    dense_momentum = True

    def __init__(self, options: DGCMemoryOptions) -> None:
        self.options = options
        kind = NESTEROV if options.nesterov else DGC
        self.form = Form(kind, options.momentum, clear=True, mask=options.masking)

    def accumulate(self, grad: torch.Tensor, old: State, new: State) -> None:
        """Write the new momentum and add it to the velocity."""
        velocity, momentum = new["velocity"], new["momentum"]
        if grad.dtype != momentum.dtype:
            grad = momentum.copy_(grad)
        if self.options.nesterov:
            torch.add(old["velocity"], grad, out=velocity)
            torch.add(grad, old["momentum"], out=momentum).mul_(self.options.momentum)
            velocity.add_(momentum)
        else:
            torch.add(grad, old["momentum"], alpha=self.options.momentum, out=momentum)
            torch.add(old["velocity"], momentum, out=velocity)

    def sent(self, compressor: Compressor, payload: Payload, new: State, ctx: Context) -> None:
        """Subtract what receivers will decode from the velocity; with masking clear the momentum there."""
        compressor.decompress_add(payload, new["velocity"], ctx, scale=-1.0)
        if self.options.masking:
            # u - u is exactly zero; padding subtracts nothing, so that it cannot touch position 0
            momentum = new["momentum"].index_select(0, payload.indices).mul_(payload.values != 0)
            new["momentum"].index_add_(0, payload.indices, momentum, alpha=-1)

    def dense_update(self, average: torch.Tensor, momentum: torch.Tensor) -> None:
        """Turn an averaged dense gradient into the step with momentum; `momentum` (float32, flat) is updated."""
        if self.options.nesterov:
            momentum.add_(average).mul_(self.options.momentum)
            average.add_(momentum)
        else:
            momentum.mul_(self.options.momentum).add_(average)
            average.copy_(momentum)
