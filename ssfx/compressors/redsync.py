"""RedSync: a threshold between the mean and the largest magnitude, by binary search or by trimming."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import ModuleType

from ssfx.compressors.base import Layout, compressors, k_floor
from ssfx.compressors.batch import Batch
from ssfx.compressors.threshold import ThresholdOptions, ThresholdSelector, above, settled, sizes
from ssfx.compressors.topk import exactly
from ssfx.kernels import Moments, kernels
from ssfx.lazy import torch


@dataclass(frozen=True)
class RedSyncOptions(ThresholdOptions):
    """`mode` search: halve an interval until the count is between k and 2 k. trimmed: lower the threshold until k pass.

    `resolution`: where the search stops, and the step of trimming, as a fraction of the way from mean to largest.
    trimmed sends exactly the k largest, so `capacity` belongs to search.
    """

    mode: str = "search"
    resolution: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mode not in ("search", "trimmed"):
            raise ValueError(f"mode must be search or trimmed, got {self.mode}")
        if not 0.01 <= self.resolution < 1:
            raise ValueError(f"resolution must be in [0.01, 1), got {self.resolution}")
        if self.mode == "trimmed" and self.capacity != 1.3:
            raise ValueError("capacity has no effect in mode=trimmed, which sends exactly k elements; use mode=search")


@compressors.register(RedSyncOptions())
class RedSync(ThresholdSelector):
    """With the default resolution only three probes, so the count of a search may be far off (codec spec 4.6, 10.4)."""

    name = "redsync"
    summary = "RedSync: threshold by binary search between mean and maximum, or trimmed exact top-k"
    source = "codecs spec 4.6; Fang et al. 2019"
    options: RedSyncOptions

    def layout(self, numel: int, density: float) -> Layout:
        """As every threshold codec; trimmed: k = floor(density * numel) indices and values."""
        if self.options.mode == "search":
            return super().layout(numel, density)
        k = k_floor(numel, density)
        return Layout(indices=k, values=k, value_dtype=self.options.value_dtype)

    def compress_batch(self, batch: Batch) -> None:
        """Write the selected elements in ascending order of position."""
        if self.options.mode == "search":
            super().compress_batch(batch)
        else:
            kernel = kernels(batch.vector.device)
            kernel.select(batch, batch.once("rule", lambda: exactly(batch)), self.thresholds(batch, kernel))

    def thresholds(self, batch: Batch, kernel: ModuleType) -> torch.Tensor:
        """Magnitudes above mean + ratio * (largest - mean), for the ratio that search or trimming ends with."""
        find = self._search if self.options.mode == "search" else self._trim
        return find(batch, kernel, kernel.moments(batch))

    def _search(self, batch: Batch, kernel: ModuleType, moments: Moments) -> torch.Tensor:
        n, k = sizes(batch)
        low, high = torch.zeros_like(n), torch.ones_like(n)
        ratio, active = (low + high) / 2, k < n
        for _ in range(_halvings(self.options.resolution) - 1):  # the last probe is not followed by another
            if settled(active):
                break
            level = above(level_at(moments, n, ratio))
            count = kernel.count(batch, torch.where(active, level, torch.nan))
            active = active & ~((k < count) & (count < 2 * k))
            few = count < k / 2
            high = torch.where(active & few, ratio, high)
            low = torch.where(active & ~few, ratio, low)
            ratio = (low + high) / 2
        return above(level_at(moments, n, ratio))

    def _trim(self, batch: Batch, kernel: ModuleType, moments: Moments) -> torch.Tensor:
        n, k = sizes(batch)
        found, active, ratio = torch.zeros_like(n), k < n, 1 - self.options.resolution
        while ratio >= 0 and not settled(active):
            level = above(level_at(moments, n, torch.full_like(n, ratio)))
            enough = active & (kernel.count(batch, torch.where(active, level, torch.nan)) >= k)
            found = torch.where(enough, level, found)
            active = active & ~enough
            ratio -= self.options.resolution
        return found


def level_at(moments: Moments, n: torch.Tensor, ratio: torch.Tensor) -> torch.Tensor:
    """Return what lies at `ratio` of the way from the mean magnitude to the largest; float64 [S]."""
    mean = moments.absolute / n
    return mean + ratio * (moments.largest - mean)


def _halvings(resolution: float) -> int:
    """Return how often an interval of length 1 is halved while it is longer than `resolution`."""
    return math.ceil(-math.log2(resolution))
