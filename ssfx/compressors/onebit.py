"""1-bit SGD: a bit per element, decoded by the mean of the elements that have the same bit."""

from __future__ import annotations

from ssfx.compressors.base import Context, Layout, Payload, compressors
from ssfx.compressors.batch import Batch
from ssfx.compressors.quantizer import Quantizer, code_bytes
from ssfx.kernels import quantizers
from ssfx.lazy import torch
from ssfx.spec import NoOptions


@compressors.register()
class OneBit(Quantizer):
    """Classes a < 0 and a >= 0 with their means, per segment; never worse than EF-SignSGD (codec specification 5.5)."""

    name = "onebit"
    summary = "one bit per element, decoded by class means, made for error feedback"
    source = "codecs spec 5.5; Seide et al. 2014"

    def __init__(self, options: NoOptions) -> None:
        self.options = options

    def layout(self, numel: int, density: float) -> Layout:
        """Two means, negative class first, and ceil(n / 8) bytes."""
        return Layout(scales=2 if numel else 0, code_bytes=code_bytes(numel, 1))

    def compress_batch(self, batch: Batch) -> None:
        """Write bits and class means of every segment."""
        quantizers(batch.vector.device).two_means(batch)

    def decompress_add(self, payload: Payload, out: torch.Tensor, ctx: Context, scale: float = 1.0) -> None:
        """Add scale * the mean of each element's class."""
        means = payload.scales * scale
        quantizers(out.device).add_signs(payload, means[:1], means[1:], 0, out)
