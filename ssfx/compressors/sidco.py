"""SIDCo: the threshold of a fitted distribution, refined by fitting its tail again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

from ssfx.compressors import sidco_fits as fits
from ssfx.compressors.base import compressors
from ssfx.compressors.batch import Batch
from ssfx.compressors.sidco_stages import COLUMNS, RULES, Adaptation, adapted, max_stages, stages
from ssfx.compressors.threshold import ThresholdOptions, ThresholdSelector, above, over_parts, settled, sizes
from ssfx.lazy import torch

FAMILIES = ("exponential", "gpareto", "gamma_gpareto")
_STATE = "stages"


@dataclass(frozen=True)
class SIDCoOptions(ThresholdOptions):
    """`family`: exponential (SIDCo-E), gpareto (SIDCo-P) or gamma_gpareto (SIDCo-GP: gamma in the first stage).

    `stages` is fixed, or 0: adapted per segment by the rule `adaptation` with `window` calls and `tolerance`. The first
    of several stages keeps `first_ratio`, the others the rest in equal ratios.
    """

    family: str = "exponential"
    stages: int = 0
    first_ratio: float = 0.25
    adaptation: str = "robust"
    window: int = 5
    tolerance: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.family not in FAMILIES:
            raise ValueError(f"family must be one of {', '.join(FAMILIES)}, got {self.family}")
        if self.adaptation not in RULES:
            raise ValueError(f"adaptation must be one of {', '.join(RULES)}, got {self.adaptation}")
        if not 0 <= self.stages <= 20:
            raise ValueError(f"stages must be from 0 (adapted) to 20, got {self.stages}")
        if not 0 < self.first_ratio < 1 or not 0 < self.tolerance < 1 or self.window < 1:
            raise ValueError("first_ratio and tolerance must be in (0, 1), window at least 1")
        if self.stages and (self.adaptation, self.window, self.tolerance) != ("robust", 5, 0.2):
            raise ValueError("adaptation, window and tolerance have no effect with fixed stages; use stages=0")
        if self.stages == 1 and self.first_ratio != 0.25:
            raise ValueError("first_ratio has no effect with stages=1; use stages=2 or more")


@compressors.register(SIDCoOptions())
class SIDCo(ThresholdSelector):
    """Right where the data is of the family; gpareto with two or three stages is the most reliable (spec 10.4).

    Only what is not zero is fitted, for the ratio that is then wanted of it.
    """

    name = "sidco"
    summary = "SIDCo: threshold of an exponential, Pareto or gamma fit in several stages"
    source = "codecs spec 4.7; Abdelmoniem et al. 2021"
    options: SIDCoOptions

    def state_shapes(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """What adaptation knows of a segment; nothing with fixed stages."""
        return {} if self.options.stages else {_STATE: (COLUMNS,)}

    def thresholds(self, batch: Batch, kernel: ModuleType) -> torch.Tensor:
        """Magnitudes above the quantile of the last fit; adapts the number of stages."""
        if self.options.stages:
            return above(self._level(batch, kernel, over_parts(batch, "stages", lambda _: self.options.stages)))
        most = over_parts(batch, "most", lambda part: max_stages(part.density))
        rows = [state[_STATE] for state in batch.states]
        state = torch.stack(rows)
        threshold = above(self._level(batch, kernel, stages(state, most)))
        k = sizes(batch)[1].clamp(min=1)
        how = Adaptation(self.options.adaptation, self.options.window, self.options.tolerance)
        changed = adapted(state, kernel.count(batch, threshold) / k, most, how)
        torch._foreach_copy_(rows, list(changed.unbind()))
        return threshold

    def _level(self, batch: Batch, kernel: ModuleType, number: torch.Tensor) -> torch.Tensor:
        first_ratio, family = self.options.first_ratio, self.options.family
        moments = kernel.moments(batch)
        n, _ = sizes(batch)
        density = over_parts(batch, "density", lambda part: part.density)
        ratio = (density * n / moments.nonzero).clamp(max=1)
        several = (number > 1) & (ratio < first_ratio)
        log_first = torch.where(several, first_ratio, ratio).log()
        log_next = (ratio / first_ratio).log() / (number - 1).clamp(min=1)

        body = fits.Sample.of(moments.nonzero, moments.absolute, moments.square, torch.zeros_like(n))
        if family == "gamma_gpareto":
            level = fits.gamma(body, kernel.log_sum(batch) / moments.nonzero, log_first)
        else:
            level = _fit(family, body, log_first)
        for stage in range(1, self._most(batch)):
            active = several & (stage < number)
            if settled(active):
                break
            tail = kernel.tail(batch, torch.where(active, above(level), torch.nan))
            sample = fits.Sample.of(tail.count, tail.total, tail.square, tail.least)
            # nothing above the threshold, or all of it equal: there is nothing to fit, and the threshold stays
            level = torch.where(active & (sample.mean > 0), _fit(family, sample, log_next), level)
        return level

    def _most(self, batch: Batch) -> int:
        return self.options.stages or max(max_stages(part.density) for part in batch.parts)


def _fit(family: str, sample: fits.Sample, log_ratio: torch.Tensor) -> torch.Tensor:
    return (fits.exponential if family == "exponential" else fits.gpareto)(sample, log_ratio)
