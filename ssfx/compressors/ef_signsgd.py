"""EF-SignSGD: signs times the mean magnitude; what that leaves out is fed back."""

from __future__ import annotations

from dataclasses import dataclass

from ssfx.compressors.base import Context, Layout, Payload, compressors
from ssfx.compressors.batch import Batch
from ssfx.compressors.kernels import quantizers
from ssfx.compressors.quantizer import Quantizer, check_block, code_bytes, num_blocks
from ssfx.core.lazy import torch


@dataclass(frozen=True)
class EFSignSGDOptions:
    """`block`: elements that share a scale, a multiple of 8; 0 is one scale for the whole segment."""

    block: int = 0

    def __post_init__(self) -> None:
        check_block("block", self.block)


@compressors.register(EFSignSGDOptions())
class EFSignSGD(Quantizer):
    """The projection of each block on its signs, so the error is |a|^2 - |a|_1^2 / n (D-24)."""

    name = "ef_signsgd"
    summary = "sign bits times the mean magnitude, made for error feedback"
    source = "Karimireddy et al. 2019, Zheng et al. 2019; D-24"
    options: EFSignSGDOptions

    def layout(self, numel: int, density: float) -> Layout:
        """A scale per block and ceil(n / 8) bytes."""
        return Layout(scales=num_blocks(numel, self.options.block), code_bytes=code_bytes(numel, 1))

    def compress_batch(self, batch: Batch) -> None:
        """Write bits and mean magnitudes of every segment."""
        quantizers(batch.vector.device).scaled_signs(batch, self.options.block)

    def decompress_add(self, payload: Payload, out: torch.Tensor, ctx: Context, scale: float = 1.0) -> None:
        """Add plus or minus scale * mean magnitude."""
        high = payload.scales * scale
        quantizers(out.device).add_signs(payload, -high, high, self.options.block, out)
