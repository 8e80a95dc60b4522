"""Residual error feedback, its variants, and no memory: what was not sent is added to the next gradient, or lost."""

from __future__ import annotations

from typing import Any

from ssfx.compressors.base import Compressor, Context, Payload
from ssfx.compressors.kernels import COPY, RESIDUAL, Form
from ssfx.compressors.memories.base import Memory, State, memories
from ssfx.core.lazy import torch
from ssfx.core.spec import NoOptions


@memories.register()
class Residual(Memory):
    """a = e + g; after sending, e = a - decoded payload (D-6): gradient mass is conserved."""

    name = "residual"
    summary = "residual error feedback: unsent mass is added to the next gradient"
    source = "Seide et al. 2014, Stich et al. 2018; D-6"
    buffers = ("residual",)
    keeps_rest = True

    decay = 1.0
    """Weight of the past; momentum has its own."""

    def __init__(self, options: Any) -> None:
        self.options = options
        self.form = Form(RESIDUAL, self.decay, clear=True)

    def accumulate(self, grad: torch.Tensor, old: State, new: State) -> None:
        """Write decay * e + g."""
        out = new["residual"]
        if grad.dtype != out.dtype:
            grad = out.copy_(grad)  # faster than an addition of two dtypes, which makes a temporary
        torch.add(grad, old["residual"], alpha=self.decay, out=out)

    def sent(self, compressor: Compressor, payload: Payload, new: State, ctx: Context) -> None:
        """Subtract what receivers will decode, including the rounding of 16-bit values (D-6)."""
        compressor.decompress_add(payload, new["residual"], ctx, scale=-1.0)


@memories.register()
class LRScaled(Residual):
    """a = (r' / r) * e + g, r being the learning rate and r' that of e (D-15).

    Under SGD the parameters are at every step those of accumulating r * g (D-15), while the optimizer
    keeps its rate. `ssfx.compressors.memories.rates.Rates` applies r' / r to the committed residual before the step.
    """

    name = "lr_scaled"
    summary = "residual error feedback that is rescaled when the learning rate changes"
    source = "Zheng et al. 2019, MiCRO algorithm 1; D-15"
    follows_rate = True


@memories.register()
class NoMemory(Memory):
    """The gradient itself is compressed."""

    name = "none"
    summary = "no error feedback: what is not sent is lost"
    source = "no error feedback"
    buffers = ("accumulated",)
    stateful = False
    feedback = False
    keeps_rest = True

    def __init__(self, options: NoOptions) -> None:
        self.options = options
        self.form = Form(COPY)

    def accumulate(self, grad: torch.Tensor, old: State, new: State) -> None:
        """Copy the gradient."""
        new["accumulated"].copy_(grad)

    def sent(self, compressor: Compressor, payload: Payload, new: State, ctx: Context) -> None:
        """Keep nothing, so there is nothing to update."""
