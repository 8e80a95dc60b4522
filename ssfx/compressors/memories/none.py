"""No memory: what is not sent is lost; for unbiased and lossless compressors and for ablations."""

from __future__ import annotations

from ssfx.compressors.base import Compressor, Context, Payload
from ssfx.compressors.kernels import COPY, Form
from ssfx.compressors.memories.base import Memory, State, memories
from ssfx.core.component_spec import NoOptions
from ssfx.core.lazy import torch


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
