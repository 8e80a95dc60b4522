"""Residual error feedback, its variants, and no memory: what was not sent is added to the next gradient, or lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ssfx.compressors.base import Compressor, Context, Payload
from ssfx.compressors.kernels import COPY, RESIDUAL, Form
from ssfx.compressors.memories.base import Memory, State, memories
from ssfx.core.lazy import torch
from ssfx.core.spec import Bounded, NoOptions


@dataclass(frozen=True)
class ResidualOptions(Bounded):
    """`decay` (beta) weighs the old residual, `gain` (gamma) the gradient; 1 and 1 conserve gradient mass."""

    decay: Annotated[float, "[0, 1]"] = 1.0
    gain: Annotated[float, "(0, inf)"] = 1.0


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


@memories.register(ResidualOptions())
class LRScaled(Residual):
    """a = decay * (r' / r) * e + gain * g, r being the learning rate and r' that of e (D-15).

    Under SGD the parameters are at every step those of accumulating r * g (D-15), while the optimizer
    keeps its rate. `ssfx.compressors.memories.rates.Rates` applies r' / r to the committed residual before the step.
    """

    name = "lr_scaled"
    summary = "residual error feedback that is rescaled when the learning rate changes"
    source = "Zheng et al. 2019, MiCRO algorithm 1; D-15"
    follows_rate = True


@dataclass(frozen=True)
class LowPassOptions(Bounded):
    """`beta` in (0, 1]: how much of a step's unsent gradient enters the residual; 1 is the residual memory."""

    beta: Annotated[float, "(0, 1]"] = 0.1


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
