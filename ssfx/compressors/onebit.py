"""1-bit SGD: a bit per element, decoded by the mean of the elements that have the same bit."""

from __future__ import annotations

from dataclasses import dataclass

from ssfx.compressors.base import compressors
from ssfx.compressors.kernels import Coding
from ssfx.compressors.quantizer import BlockQuantizer, check_block
from ssfx.core.spec import Bounded


@dataclass(frozen=True)
class OneBitOptions(Bounded):
    """`bucket` elements, a multiple of 8, share two means; 0: the whole segment."""

    bucket: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_block("bucket", self.bucket)


@compressors.register(OneBitOptions())
class OneBit(BlockQuantizer):
    """Classes a < 0 and a >= 0 with their means, negative class first; never worse than EF-SignSGD (D-25)."""

    name = "onebit"
    summary = "one bit per element, decoded by class means, made for error feedback"
    source = "Seide et al. 2014; D-25"

    def __init__(self, options: OneBitOptions) -> None:
        self.options, self.coding = options, Coding("means", 1, options.bucket)
