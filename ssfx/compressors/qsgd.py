"""QSGD: levels between 0 and each bucket's norm, rounded up or down at random, right on average."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ssfx.compressors.base import Context, Layout, Payload, compressors
from ssfx.compressors.batch import Batch
from ssfx.compressors.kernels import quantizers
from ssfx.compressors.quantizer import Quantizer, check_block, code_bytes, num_blocks
from ssfx.core.lazy import torch
from ssfx.core.spec import Bounded


@dataclass(frozen=True)
class QSGDOptions(Bounded):
    """`bits` per element: 2^(bits - 1) - 1 levels. `bucket` elements, a multiple of 8, share a norm.

    `bucket` 0 is one norm for the whole segment. `norm`: l2, the Euclidean norm, or max, the largest magnitude.
    `nearest`: to the nearest level instead of at random, for weights: half the variance, but not right on average.
    `rotate`: so many neighbours are multiplied by an orthogonal Hadamard matrix before, and after decoding by it again,
    which spreads what is large over a block (SDP4Bit); 0: none are. Recorded times of qsgd are without it.
    """

    bits: Literal[2, 4, 8] = 8
    bucket: int = 512
    norm: Literal["l2", "max"] = "l2"
    nearest: bool = False
    rotate: Literal[0, 16, 32, 64, 128] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_block("bucket", self.bucket)

    @property
    def top(self) -> int:
        """The highest level."""
        return (1 << self.bits - 1) - 1


@compressors.register(QSGDOptions())
class QSGD(Quantizer):
    """Unbiased, with variance at most min(n / s^2, sqrt(n) / s) |a|^2 for s levels and buckets of n (D-25).

    The error may be fed back only where that is below 1, which is where a bucket is smaller than s^2 (D-14).
    """

    name = "qsgd"
    summary = "stochastic quantisation to 2, 4 or 8 bits per element, unbiased"
    source = "Alistarh et al. 2017; rotated: Jia et al. 2024 (SDP4Bit); D-25"

    def __init__(self, options: QSGDOptions) -> None:
        self.options = options
        self.error_feedback = 0 < options.bucket < options.top**2

    def layout(self, numel: int, density: float) -> Layout:
        """A norm per bucket and ceil(bits * n / 8) bytes."""
        return Layout(scales=num_blocks(numel, self.options.bucket), code_bytes=code_bytes(numel, self.options.bits))

    def compress_batch(self, batch: Batch) -> None:
        """Write norms and levels of every segment."""
        options = self.options
        kernels, largest = quantizers(batch.vector.device), options.norm == "max"
        kernels.levels(batch, options.bits, options.bucket, largest, options.nearest, options.rotate)

    def decompress_add(self, payload: Payload, out: torch.Tensor, ctx: Context, scale: float = 1.0) -> None:
        """Add scale * level * norm / s, turned back if it was turned."""
        options, kernels = self.options, quantizers(out.device)
        steps = payload.scales * (scale / options.top)
        if not options.rotate:
            kernels.add_levels(payload, options.bits, steps, options.bucket, out)
            return
        turned = torch.zeros_like(out)
        kernels.add_levels(payload, options.bits, steps, options.bucket, turned)
        kernels.rotate(turned, options.rotate)
        out.add_(turned)
