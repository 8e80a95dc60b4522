"""RedSync: a threshold between the mean and the largest magnitude, by binary search; and quantised. Source: D-22."""

from __future__ import annotations

from types import ModuleType

from ssfx.compressors.base import compressors
from ssfx.compressors.batch import Batch
from ssfx.compressors.threshold import ThresholdSelector, above, settled, sizes
from ssfx.compressors.topk import TopKOptions
from ssfx.core.lazy import torch

PROBES = 3
"""Halvings of the way from the mean to the largest magnitude, until it is a fifth: the paper's resolution."""


@compressors.register(TopKOptions())
class RedSync(ThresholdSelector):
    """An interval is halved until the count is between k and 2 k; with three probes it may be far off (D-22)."""

    name = "redsync"
    summary = "RedSync: threshold by binary search between mean and maximum"
    source = "Fang et al. 2019; D-22"

    def thresholds(self, batch: Batch, kernel: ModuleType) -> torch.Tensor:
        """Magnitudes above mean + ratio * (largest - mean), for the ratio that the search ends with."""
        moments, (n, k) = kernel.moments(batch), sizes(batch)
        mean = moments.absolute / n

        def level(ratio: torch.Tensor) -> torch.Tensor:
            return above(mean + ratio * (moments.largest - mean))

        low, high, active = torch.zeros_like(n), torch.ones_like(n), k < n
        for _ in range(PROBES - 1):  # the last probe is not followed by another
            if settled(active):
                break
            ratio = (low + high) / 2
            count = kernel.count(batch, torch.where(active, level(ratio), torch.nan))
            active = active & ~((k < count) & (count < 2 * k))
            few = count < k / 2
            high, low = torch.where(active & few, ratio, high), torch.where(active & ~few, ratio, low)
        return level((low + high) / 2)
