"""GaussianK: the threshold that a normal distribution would have, moved until the count is about right."""

from __future__ import annotations

from types import ModuleType

from ssfx.compressors.base import compressors
from ssfx.compressors.batch import Batch
from ssfx.compressors.threshold import ThresholdSelector, above, over_parts, settled, sizes
from ssfx.compressors.topk import TopKOptions
from ssfx.core.lazy import torch

LOOKS = 3
"""Thresholds of the authors' loop, the last of which counts."""
LOW, HIGH, DOWN, UP = 2 / 3, 4 / 3, 0.5, 1.5
"""Fewer than LOW * k elements: the next threshold is DOWN times as high; more than HIGH * k: UP times."""


@compressors.register(TopKOptions())
class GaussianK(ThresholdSelector):
    """About right for normal data only; the count of other distributions is far off (D-22)."""

    name = "gaussiank"
    summary = "GaussianK: threshold of a normal fit, adjusted up to twice"
    source = "Shi et al. 2019; D-22"

    def thresholds(self, batch: Batch, kernel: ModuleType) -> torch.Tensor:
        """Magnitudes above mean + z * standard deviation, the mean being that of the signed elements."""
        moments, (n, k) = kernel.moments(batch), sizes(batch)
        mean = moments.total / n
        variance = (moments.square - n * mean**2) / (n - 1).clamp(min=1)
        level = mean + over_parts(batch, "z", lambda part: normal_quantile(part.density)) * variance.clamp(min=0).sqrt()
        active = k < n
        for _ in range(LOOKS - 1):
            if settled(active):
                break
            count = kernel.count(batch, torch.where(active, above(level), torch.nan))
            few, many = active & (count < LOW * k), active & (count > HIGH * k)
            level = torch.where(few, DOWN * level, torch.where(many, UP * level, level))
            active = few | many
        return above(level)


def normal_quantile(density: float) -> float:
    """Return z so that a standard normal number lies outside (-z, z) with probability `density`."""
    from statistics import NormalDist  # slow to import, and `ssfx list` imports this file

    return NormalDist().inv_cdf(1 - density / 2)
