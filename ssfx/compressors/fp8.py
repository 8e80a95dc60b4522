"""fp8: every element as an 8-bit float, scaled block by block so that the largest magnitude is the format's."""

from __future__ import annotations

from typing import Any

from ssfx.compressors.base import compressors
from ssfx.compressors.kernels import Coding
from ssfx.compressors.quantizer import BlockQuantizer

BUCKET = 512
"""Elements that share a scale."""


@compressors.register()
class FP8(BlockQuantizer):
    """Round a / scale to e4m3: of magnitudes above 2^-15 of a block's largest, the relative error is at most 2^-4.

    Ranks gather codes and add them up in float32: a sum of codes would not fit their range. The error is smaller than
    what is sent, so that it may be fed back.
    """

    name = "fp8"
    summary = "every element as an 8-bit float (e4m3) with a scale per block, added up in float32"
    source = "Micikevicius et al. 2022"

    def __init__(self, options: Any) -> None:
        self.options, self.coding = options, Coding("fp8", 8, BUCKET)
