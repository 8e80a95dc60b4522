"""Residual error feedback: what was not sent this step is added to the next gradient."""

from __future__ import annotations

from dataclasses import dataclass

from ssfx.compressors.base import Compressor, Context, Payload
from ssfx.compressors.kernels import RESIDUAL, Form
from ssfx.compressors.memories.base import Memory, State, memories
from ssfx.core.lazy import torch


@dataclass(frozen=True)
class ResidualOptions:
    """`decay` (beta) weighs the old residual, `gain` (gamma) the gradient; 1 and 1 conserve gradient mass."""

    decay: float = 1.0
    gain: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.decay <= 1 or self.gain <= 0:
            raise ValueError(f"decay must be in [0, 1] and gain positive, got {self.decay} and {self.gain}")


@memories.register(ResidualOptions())
class Residual(Memory):
    """a = decay * e + gain * g; after sending, e = a - decoded payload (D-6)."""

    name = "residual"
    summary = "residual error feedback: unsent mass is added to the next gradient"
    source = "Seide et al. 2014, Stich et al. 2018; D-6"
    buffers = ("residual",)
    keeps_rest = True

    def __init__(self, options: ResidualOptions) -> None:
        self.options = options
        self.form = Form(RESIDUAL, options.decay, options.gain, clear=True)

    def accumulate(self, grad: torch.Tensor, old: State, new: State) -> None:
        """Write decay * e + gain * g."""
        out = new["residual"]
        if grad.dtype != out.dtype:
            grad = out.copy_(grad)  # faster than an addition of two dtypes, which makes a temporary
        if self.options.gain != 1:
            grad = torch.mul(grad, self.options.gain, out=out)
        torch.add(grad, old["residual"], alpha=self.options.decay, out=out)

    def sent(self, compressor: Compressor, payload: Payload, new: State, ctx: Context) -> None:
        """Subtract what receivers will decode, including the rounding of 16-bit values (D-6)."""
        compressor.decompress_add(payload, new["residual"], ctx, scale=-1.0)
