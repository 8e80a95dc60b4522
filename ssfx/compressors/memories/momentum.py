"""Memories that keep a momentum of the gradients: momentum, signum and dgc."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ssfx.compressors.base import Compressor, Context, Payload
from ssfx.compressors.kernels import DGC, RESIDUAL, Form
from ssfx.compressors.memories.base import Memory, State, memories
from ssfx.compressors.memories.residual import Residual
from ssfx.core.lazy import torch
from ssfx.core.spec import Bounded


@dataclass(frozen=True)
class MomentumOptions(Bounded):
    """`decay` in [0, 1): the weight of the past, DeMo's; 1 would be the residual, which forgets nothing.

    At a density d an element waits for 1/d steps on average: with 0.9 what waits for 100 steps is forgotten.
    """

    decay: Annotated[float, "[0, 1)"] = 0.999


@memories.register(MomentumOptions())
class Momentum(Residual):
    """m = decay * m + g is compressed; after sending, m <- m - decoded payload.

    A residual that forgets: a gradient that is not sent in k steps counts decay^k of itself. What ranks sent and have
    in memory is so the decayed sum of their gradients, not the sum. Any optimizer sees what arrives.
    """

    name = "momentum"
    summary = "local momentum before compression, from which what is sent is taken: old gradients fade"
    source = "Peng et al. 2024 (DeMo), Algorithm 1, without its cosine transform"

    def __init__(self, options: MomentumOptions) -> None:
        self.decay = options.decay
        super().__init__(options)


@dataclass(frozen=True)
class SignumOptions(Bounded):
    """`beta` in [0, 1): the weight of the past."""

    beta: Annotated[float, "[0, 1)"] = 0.9


@memories.register(SignumOptions())
class Signum(Memory):
    """m = beta * m + (1 - beta) * g, local and from zero; m is compressed (D-18).

    With compressor=signsgd this is Signum with majority vote. Nothing is fed back, so it goes with every compressor;
    tensors that are sent dense get the same momentum from their averaged gradient. The optimizer must run without.
    """

    name = "signum"
    summary = "local momentum before compression, kept whole: Signum with signsgd"
    source = "Bernstein et al. 2018; D-18"
    buffers = ("momentum",)
    feedback = False
    forbids_optimizer_momentum = True
    dense_momentum = True

    def __init__(self, options: SignumOptions) -> None:
        self.options = options
        self.form = Form(RESIDUAL, options.beta, 1 - options.beta)

    def accumulate(self, grad: torch.Tensor, old: State, new: State) -> None:
        """Write the new momentum."""
        momentum = new["momentum"]
        if grad.dtype != momentum.dtype:
            grad = momentum.copy_(grad)
        torch.mul(grad, 1 - self.options.beta, out=momentum)
        momentum.add_(old["momentum"], alpha=self.options.beta)

    def sent(self, compressor: Compressor, payload: Payload, new: State, ctx: Context) -> None:
        """Keep everything: the momentum is a mean, not a debt."""

    def dense_update(self, average: torch.Tensor, momentum: torch.Tensor) -> None:
        """Turn an averaged dense gradient into the running mean; `momentum` (float32, flat) is updated."""
        momentum.mul_(self.options.beta).add_(average, alpha=1 - self.options.beta)
        average.copy_(momentum)


@dataclass(frozen=True)
class DGCMemoryOptions(Bounded):
    """`momentum` in [0, 1): that of the optimizer, which then runs without."""

    momentum: Annotated[float, "[0, 1)"] = 0.9


@memories.register(DGCMemoryOptions())
class DGCMemory(Memory):
    """u = m * u + g, v = v + u; v is compressed, and what is sent leaves v and u (D-16).

    The optimizer must run without momentum.
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
        self.form = Form(DGC, options.momentum, clear=True)

    def accumulate(self, grad: torch.Tensor, old: State, new: State) -> None:
        """Write the new momentum and add it to the velocity."""
        velocity, momentum = new["velocity"], new["momentum"]
        if grad.dtype != momentum.dtype:
            grad = momentum.copy_(grad)
        torch.add(grad, old["momentum"], alpha=self.options.momentum, out=momentum)  # u = m u + g
        torch.add(old["velocity"], momentum, out=velocity)  # v = v + u

    def sent(self, compressor: Compressor, payload: Payload, new: State, ctx: Context) -> None:
        """Subtract what receivers will decode from the velocity, and clear the momentum there."""
        compressor.decompress_add(payload, new["velocity"], ctx, scale=-1.0)
        # u - u is exactly zero; padding subtracts nothing, so that it cannot touch position 0
        momentum = new["momentum"].index_select(0, payload.indices).mul_(payload.values != 0)
        new["momentum"].index_add_(0, payload.indices, momentum, alpha=-1)

    def dense_update(self, average: torch.Tensor, momentum: torch.Tensor) -> None:
        """Turn an averaged dense gradient into the step with momentum; `momentum` (float32, flat) is updated."""
        momentum.mul_(self.options.momentum).add_(average)
        average.copy_(momentum)
