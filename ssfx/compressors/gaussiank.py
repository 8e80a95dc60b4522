"""GaussianK: the threshold that a normal distribution would have, moved until the count is about right."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Annotated

from ssfx.compressors.base import compressors
from ssfx.compressors.batch import Batch
from ssfx.compressors.threshold import ThresholdOptions, ThresholdSelector, above, over_parts, settled, sizes
from ssfx.core.lazy import torch

DIRECTIONS = ("both", "one", "down")
_NO_LOOP, _DOWN = (2 / 3, 4 / 3, 0.5, 1.5, "both"), (4 / 3, 1.5)


@dataclass(frozen=True)
class GaussianKOptions(ThresholdOptions):
    """The authors' loop: up to `max_loops` thresholds are looked at and the last of them counts.

    Fewer than `low` * k elements: the next one is `down` times as high; more than `high` * k: `up` times. `direction`
    both: as each look tells; one: only in the direction of the first change; down: a threshold is never raised. With
    `max_loops` 1 the normal fit is taken as it is. Ok-Topk's loop is max_loops=21, low=0.75, high=1.25, down=0.98039,
    up=1.02, direction=one; for BERT it is max_loops=21, low=0.83333, down=0.98814, direction=down.
    """

    max_loops: Annotated[int, 1] = 3
    low: float = 2 / 3
    high: float = 4 / 3
    down: float = 0.5
    up: float = 1.5
    direction: Annotated[str, DIRECTIONS] = "both"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.low <= 1 <= self.high:
            raise ValueError(f"low must be in (0, 1] and high at least 1, got {self.low} and {self.high}")
        if not 0 < self.down < 1 < self.up:
            raise ValueError(f"down must be in (0, 1) and up above 1, got {self.down} and {self.up}")
        if self.max_loops == 1 and (self.low, self.high, self.down, self.up, self.direction) != _NO_LOOP:
            raise ValueError("low, high, down, up and direction have no effect with max_loops=1; use max_loops=2")
        if self.direction == "down" and (self.high, self.up) != _DOWN:
            raise ValueError("high and up have no effect with direction=down; use direction=one")


@compressors.register(GaussianKOptions())
class GaussianK(ThresholdSelector):
    """About right for normal data only; the count of other distributions is far off (D-22)."""

    name = "gaussiank"
    summary = "GaussianK: threshold of a normal fit, adjusted up to twice"
    source = "Shi et al. 2019; D-22"
    options: GaussianKOptions

    def thresholds(self, batch: Batch, kernel: ModuleType) -> torch.Tensor:
        """Magnitudes above mean + z * standard deviation, the mean being that of the signed elements."""
        options, moments = self.options, kernel.moments(batch)
        n, k = sizes(batch)
        mean = moments.total / n
        variance = (moments.square - n * mean**2) / (n - 1).clamp(min=1)
        z = over_parts(batch, "z", lambda part: normal_quantile(part.density))
        level = mean + z * variance.clamp(min=0).sqrt()
        active = may_fall = k < n
        may_rise = active & (options.direction != "down")
        for _ in range(options.max_loops - 1):
            if settled(active):
                break
            count = kernel.count(batch, torch.where(active, above(level), torch.nan))
            few, many = active & may_fall & (count < options.low * k), active & may_rise & (count > options.high * k)
            if options.direction == "one":
                may_fall, may_rise = few, many
            level = torch.where(few, options.down * level, torch.where(many, options.up * level, level))
            active = few | many
        return above(level)


def normal_quantile(density: float) -> float:
    """Return z so that a standard normal number lies outside (-z, z) with probability `density`."""
    from statistics import NormalDist  # slow to import, and `ssfx list` imports this file

    return NormalDist().inv_cdf(1 - density / 2)
