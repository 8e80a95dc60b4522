"""Low-pass memory: the residual follows slowly what was not sent, so that the residuals of all ranks stay alike."""

from __future__ import annotations

from dataclasses import dataclass

from ssfx.compressors.base import Compressor, Context, Payload
from ssfx.compressors.memories.base import Memory, State, memories
from ssfx.core.lazy import torch


@dataclass(frozen=True)
class LowPassOptions:
    """`beta` in (0, 1]: how much of a step's unsent gradient enters the residual; 1 is the residual memory."""

    beta: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.beta <= 1:
            raise ValueError(f"beta must be in (0, 1], got {self.beta}")


@memories.register(LowPassOptions())
class LowPass(Memory):
    """a = e + g; after sending, e <- e + beta (g - sent) = beta (a - sent) + (1 - beta) e (D-17).

    The second buffer keeps (1 - beta) e during the step, because `sent` no longer sees e.
    """

    name = "low_pass"
    summary = "residual through a low-pass filter, for cltk with large batches"
    source = "Chen et al. 2020 (ScaleCom); D-17"
    buffers = ("residual", "held")
    options: LowPassOptions

    def accumulate(self, grad: torch.Tensor, old: State, new: State) -> None:
        """Write e + g, and what of e the filter lets pass."""
        torch.mul(old["residual"], 1 - self.options.beta, out=new["held"])
        torch.add(old["residual"], grad, out=new["residual"])

    def sent(self, compressor: Compressor, payload: Payload, new: State, ctx: Context) -> None:
        """Subtract what receivers will decode, and filter."""
        compressor.decompress_add(payload, new["residual"], ctx, scale=-1.0)
        torch.add(new["held"], new["residual"], alpha=self.options.beta, out=new["residual"])
