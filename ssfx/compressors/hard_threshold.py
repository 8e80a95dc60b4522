"""Hard threshold: everything at least as large as a constant."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import ModuleType
from typing import Annotated

from ssfx.compressors.base import compressors, k_floor
from ssfx.compressors.batch import Batch
from ssfx.compressors.threshold import ThresholdSelector, over_parts, reaching
from ssfx.compressors.topk import TopKOptions
from ssfx.core.lazy import torch


@dataclass(frozen=True)
class HardThresholdOptions(TopKOptions):
    """`threshold` of every segment; 0: each segment takes 1 / (2 sqrt(k)), the authors' rule for an average of k.

    The rule presumes gradients that are not scaled by a learning rate. At most `capacity` * k elements are sent.
    """

    threshold: Annotated[float, 0] = 0.0
    capacity: Annotated[float, 1] = 4.0


@compressors.register(HardThresholdOptions())
class HardThreshold(ThresholdSelector):
    """No element of threshold or more is left behind unless capacity is short; density depends on the data (D-5).

    The smallest total error for a total budget over all steps, in the words of its authors.
    """

    name = "hard_threshold"
    summary = "hard threshold: all magnitudes from a constant on, up to 4 k"
    source = "Strom 2015, Sahu et al. 2021; D-5"
    options: HardThresholdOptions

    def __init__(self, options: HardThresholdOptions) -> None:
        self.options, self.capacity = options, options.capacity

    def thresholds(self, batch: Batch, kernel: ModuleType) -> torch.Tensor:
        """The constant; needs no look at the data."""
        given = self.options.threshold
        return reaching(
            over_parts(batch, "least", lambda part: given or threshold_for(k_floor(part.numel, part.density)))
        )


def threshold_for(k: int) -> float:
    """Return the authors' threshold for `k` elements per step on average; that of one element for none."""
    return 1 / (2 * math.sqrt(max(1, k)))
