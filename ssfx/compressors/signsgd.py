"""SignSGD with majority vote: one bit per element, and every element moves with the majority."""

from __future__ import annotations

from ssfx.compressors.base import Context, Layout, Payload, compressors
from ssfx.compressors.batch import Batch
from ssfx.compressors.quantizer import Quantizer, code_bytes
from ssfx.core.lazy import torch
from ssfx.kernels import quantizers


@compressors.register()
class SignSGD(Quantizer):
    """Bit = (a >= 0); receivers take the sign of the sum, 0 in a tie (D-24).

    The result has magnitude 1, so the learning rate is 10 to 100 times smaller than with SGD. The one scale of a
    segment is 1, and NaN where the segment is not finite: bits alone could not say so.
    """

    name = "signsgd"
    summary = "one sign bit per element, combined by majority vote"
    source = "Bernstein et al. 2018, 2019; D-24"
    error_feedback = False
    vote = True

    def layout(self, numel: int, density: float) -> Layout:
        """One scale and ceil(n / 8) bytes."""
        return Layout(scales=1 if numel else 0, code_bytes=code_bytes(numel, 1))

    def compress_batch(self, batch: Batch) -> None:
        """Write the bits of every segment."""
        quantizers(batch.vector.device).signs(batch)

    def decompress_add(self, payload: Payload, out: torch.Tensor, ctx: Context, scale: float = 1.0) -> None:
        """Add scale where the bit is 1 and subtract it where it is 0."""
        high = payload.scales * scale
        quantizers(out.device).add_signs(payload, -high, high, 0, out)
