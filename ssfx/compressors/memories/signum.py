"""Signum: what is compressed is a running mean of the gradients, and nothing is taken out of it when it is sent."""

from __future__ import annotations

from dataclasses import dataclass

from ssfx.compressors.base import Compressor, Context, Payload
from ssfx.compressors.kernels import RESIDUAL, Form
from ssfx.compressors.memories.base import Memory, State, memories
from ssfx.core.lazy import torch


@dataclass(frozen=True)
class SignumOptions:
    """`beta` in [0, 1): the weight of the past."""

    beta: float = 0.9

    def __post_init__(self) -> None:
        if not 0 <= self.beta < 1:
            raise ValueError(f"beta must be in [0, 1), got {self.beta}")


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
