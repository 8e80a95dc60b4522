"""fp16 and bf16: every element, rounded to 16 bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ssfx.compressors.base import Compressor, Context, Layout, Payload, compressors
from ssfx.compressors.kernels.narrow import narrow
from ssfx.core import accelerator
from ssfx.core.lazy import torch

BLOCK = 1 << 17
"""Elements of a piece of a long CPU tensor. Mixed-dtype operators make temporaries, which then stay in the cache;
measured best between 2^16 and 2^18."""


class Cast(Compressor):
    """Round to nearest even of a / world_size, so that a sum over all ranks stays in range (D-13).

    A finite value beyond the range of 16 bits is cut to the largest in it; one that is not finite makes the step one
    that all ranks skip.
    """

    in_arrays = True
    additive = True
    error_feedback = False
    lossless = True
    value_dtype: ClassVar[str]

    def layout(self, numel: int, density: float) -> Layout:
        """Every element as a 16-bit value."""
        return Layout(values=numel, value_dtype=self.value_dtype)

    def compress(self, a: torch.Tensor, payload: Payload, ctx: Context) -> None:
        """Write a / world_size."""
        for part, values in blocks(a, payload.values):
            narrow(values, part, ctx.world_size, ctx.world_size)

    def decompress_add(self, payload: Payload, out: torch.Tensor, ctx: Context, scale: float = 1.0) -> None:
        """Add scale * world_size * values."""
        for part, values in blocks(out, payload.values):
            part.add_(values, alpha=scale * ctx.world_size)


@compressors.register()
class FP16(Cast):
    """Relative error at most 2^-11 in the normal range 6e-5 .. 65504."""

    name = "fp16"
    summary = "every element as IEEE half precision, summed by the network"
    source = "Horovod fp16 compression, PyTorch DDP hooks; D-13"
    value_dtype = "float16"


@compressors.register()
class BF16(Cast):
    """Relative error at most 2^-8, the range of float32."""

    name = "bf16"
    summary = "every element as bfloat16, summed by the network"
    source = "PyTorch DDP hooks; D-13"
    value_dtype = "bfloat16"


def blocks(x: torch.Tensor, y: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield matching views of two flat tensors of one length: pieces on the CPU, everything at once elsewhere."""
    if x.numel() <= BLOCK or accelerator.queued(x.device):
        yield x, y
    else:
        yield from zip(torch.split(x, BLOCK), torch.split(y, BLOCK), strict=True)
