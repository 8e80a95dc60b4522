"""Signs: with majority vote (SignSGD), or times the mean magnitude with error feedback (EF-SignSGD)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ssfx.compressors.base import Context, Layout, Payload, compressors
from ssfx.compressors.batch import Batch
from ssfx.compressors.kernels import Coding, quantizers
from ssfx.compressors.quantizer import Quantizer, code_bytes
from ssfx.core.lazy import torch
from ssfx.core.spec import Bounded

VOTES = Coding("levels", 2, 0)
"""What two bits stand for: -1, 0 and 1 times the one scale."""


@dataclass(frozen=True)
class SignSGDOptions(Bounded):
    """`zeros`: what a zero is, `positive` (one bit an element, as published) or `abstain` (two bits, and no vote)."""

    zeros: Literal["positive", "abstain"] = "positive"


@compressors.register(SignSGDOptions())
class SignSGD(Quantizer):
    """Bit = (a >= 0), or with zeros=abstain two bits, 1 + sign(a); receivers take the sign of the sum (D-24).

    A tie is 0. The result has magnitude 1, so the learning rate is 10 to 100 times smaller than with SGD. The one scale
    of a segment is 1, and NaN where the segment is not finite: bits alone could not say so.
    """

    name = "signsgd"
    summary = "one sign bit per element, combined by majority vote"
    source = "Bernstein et al. 2018, 2019; D-24"
    error_feedback = False
    vote = True

    def __init__(self, options: SignSGDOptions) -> None:
        self.options = options
        self.bits = 2 if options.zeros == "abstain" else 1
        self.zeros_vote = options.zeros == "positive"

    def layout(self, numel: int, density: float) -> Layout:
        """One scale and ceil(n / 8) bytes; ceil(n / 4) where zeros abstain."""
        return Layout(scales=1 if numel else 0, code_bytes=code_bytes(numel, self.bits))

    def compress_batch(self, batch: Batch) -> None:
        """Write the codes of every segment."""
        kernels = quantizers(batch.vector.device)
        if self.options.zeros == "abstain":
            kernels.signed_votes(batch)
        else:
            kernels.signs(batch)

    def decompress_add(self, payload: Payload, out: torch.Tensor, ctx: Context, scale: float = 1.0) -> None:
        """Add scale for a positive element and subtract it for a negative one; an abstention adds nothing."""
        if self.options.zeros == "abstain":
            quantizers(out.device).add(payload, VOTES, out, scale)
        else:
            high = payload.scales * scale
            quantizers(out.device).add_signs(payload, -high, high, out)


@compressors.register()
class EFSignSGD(Quantizer):
    """The projection on the signs, so the error is |a|^2 - |a|_1^2 / n (D-24)."""

    name = "ef_signsgd"
    summary = "sign bits times the mean magnitude, made for error feedback"
    source = "Karimireddy et al. 2019, Zheng et al. 2019; D-24"

    def layout(self, numel: int, density: float) -> Layout:
        """A scale and ceil(n / 8) bytes."""
        return Layout(scales=1 if numel else 0, code_bytes=code_bytes(numel, 1))

    def compress_batch(self, batch: Batch) -> None:
        """Write bits and mean magnitudes of every segment."""
        quantizers(batch.vector.device).scaled_signs(batch)

    def decompress_add(self, payload: Payload, out: torch.Tensor, ctx: Context, scale: float = 1.0) -> None:
        """Add plus or minus scale * mean magnitude."""
        high = payload.scales * scale
        quantizers(out.device).add_signs(payload, -high, high, out)
