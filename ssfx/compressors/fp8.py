"""fp8: every element as an 8-bit float, scaled block by block so that the largest magnitude is the format's."""

from __future__ import annotations

from collections.abc import Iterator

from ssfx.compressors.base import Compressor, Context, Layout, Payload, compressors
from ssfx.compressors.quantizer import num_blocks
from ssfx.core.lazy import torch

LARGEST = 448.0
"""The largest finite number of e4m3."""
SMALLEST_SCALE = 2.0**-126
"""A normal float32, so that no block is divided by zero."""


BUCKET = 512
"""Elements that share a scale."""


@compressors.register()
class FP8(Compressor):
    """Round a / scale to e4m3: of magnitudes above 2^-15 of a block's largest, the relative error is at most 2^-4.

    Ranks gather codes and add them up in float32: a sum of codes would not fit their range. The error is smaller than
    what is sent, so that it may be fed back.
    """

    name = "fp8"
    summary = "every element as an 8-bit float (e4m3) with a scale per block, added up in float32"
    source = "Micikevicius et al. 2022"

    def layout(self, numel: int, density: float) -> Layout:
        """A scale per block and a byte an element."""
        return Layout(scales=num_blocks(numel, BUCKET), code_bytes=numel)

    def compress(self, a: torch.Tensor, payload: Payload, ctx: Context) -> None:
        """Write scales and codes."""
        for part, scales, codes in in_blocks(a, payload):
            torch.linalg.vector_norm(part, float("inf"), dim=1, out=scales)
            scales.div_(LARGEST).clamp_(min=SMALLEST_SCALE)
            codes.copy_(part / scales[:, None])

    def decompress_add(self, payload: Payload, out: torch.Tensor, ctx: Context, scale: float = 1.0) -> None:
        """Add scale * block's scale * code."""
        for part, scales, codes in in_blocks(out, payload):
            part.addcmul_(codes.float(), (scales * scale)[:, None])


def in_blocks(flat: torch.Tensor, payload: Payload) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Yield views: whole blocks as the rows of a matrix, with their scales and codes, then the shorter block."""
    codes = payload.codes.view(torch.float8_e4m3fn)
    whole = flat.numel() // BUCKET
    cut = whole * BUCKET
    if whole:
        yield flat[:cut].view(whole, BUCKET), payload.scales[:whole], codes[:cut].view(whole, BUCKET)
    if cut < flat.numel():
        yield flat[cut:][None], payload.scales[whole:], codes[cut:][None]
