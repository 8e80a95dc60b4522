"""QSGD: levels between 0 and each bucket's norm, rounded up or down at random, right on average."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ssfx.compressors.base import compressors
from ssfx.compressors.kernels import Coding
from ssfx.compressors.quantizer import BlockQuantizer, check_block
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


@compressors.register(QSGDOptions())
class QSGD(BlockQuantizer):
    """Unbiased, with variance at most min(n / s^2, sqrt(n) / s) |a|^2 for s levels and buckets of n (D-25).

    The error may be fed back only where that is below 1, which is where a bucket is smaller than s^2 (D-14).
    """

    name = "qsgd"
    summary = "stochastic quantisation to 2, 4 or 8 bits per element, unbiased"
    source = "Alistarh et al. 2017; rotated: Jia et al. 2024 (SDP4Bit); D-25"

    def __init__(self, options: QSGDOptions) -> None:
        self.options = options
        largest = options.norm == "max"
        self.coding = Coding("levels", options.bits, options.bucket, largest, options.nearest, options.rotate)
        self.error_feedback = 0 < options.bucket < self.coding.top**2
