"""1-bit SGD: a bit per element, decoded by the mean of the elements that have the same bit."""

from __future__ import annotations

from ssfx.compressors.base import Context, Layout, Payload, compressors
from ssfx.compressors.batch import Batch
from ssfx.compressors.kernels import quantizers
from ssfx.compressors.quantizer import Quantizer, code_bytes
from ssfx.core.lazy import torch


@compressors.register()
class OneBit(Quantizer):
    """Classes a < 0 and a >= 0 with their means; never worse than EF-SignSGD (D-25)."""

    name = "onebit"
    summary = "one bit per element, decoded by class means, made for error feedback"
    source = "Seide et al. 2014; D-25"

    def layout(self, numel: int, density: float) -> Layout:
        """Two means, negative class first, and ceil(n / 8) bytes."""
        return Layout(scales=2 if numel else 0, code_bytes=code_bytes(numel, 1))

    def compress_batch(self, batch: Batch) -> None:
        """Write bits and class means of every segment."""
        quantizers(batch.vector.device).two_means(batch)

    def decompress_add(self, payload: Payload, out: torch.Tensor, ctx: Context, scale: float = 1.0) -> None:
        """Add scale * the mean of each element's class."""
        means = payload.scales * scale
        quantizers(out.device).add_signs(payload, means[:1], means[1:], out)
