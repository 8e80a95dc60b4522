"""SIDCo: the threshold of a fitted distribution, refined by fitting its tail again.

The number of stages is adapted after every few calls, per segment (the authors share it among all tensors). The first
ratio is adapted where that has not helped. After as many changes as half of those
that may be tried, a mean ratio that has got worse moves it by 0.05 and the stages back to the middle; from a bound it
goes back to where it started, and the direction turns. Fits are vectors over segments, float64 [S]; thresholds do not
depend on the unit of a, so a is not normalised. Source: D-22, and the authors' code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Annotated

from ssfx.compressors.base import compressors
from ssfx.compressors.batch import Batch, Part
from ssfx.compressors.threshold import ThresholdOptions, ThresholdSelector, above, over_parts, settled, sizes
from ssfx.core.lazy import torch

FAMILIES = ("exponential", "gpareto", "gamma_gpareto")
_STATE, _FIRST = "stages", "first_ratio"
_ROUNDING = 1e-9  # a whole number of stages stays one
STEPS, TURNED, CHANGES = range(3)
"""Columns of the state of the first ratio, float32, all of them 0 at first: steps of 0.05 from where it started;
whether more is taken to select fewer; changes of the number of stages since the last step."""
FIRST_COLUMNS = CHANGES + 1
STEP, LEAST, MOST = 0.05, 0.05, 0.5
EXTRA, REVERSED, KNOWN, PREVIOUS, SUM, CALLS = range(6)
"""Columns of the state, float32, all of them 0 at first: stages beyond one; whether more stages are taken to select
fewer; whether a window has ended, and its mean ratio; sum of ratios and number of calls in the present window."""
COLUMNS = CALLS + 1

RULES = ("steady", "reverse", "bracket", "robust")
"""steady: more stages select more, for ever (the authors' mode -1). reverse: the direction turns when the ratio has got
worse (-2). bracket: it turns unless the ratio moves away from the window on the same side (-3). robust: reverse, and it
turns as well when there was no room for a wanted change."""


@dataclass(frozen=True)
class SIDCoOptions(ThresholdOptions):
    """`family`: exponential (SIDCo-E), gpareto (SIDCo-P) or gamma_gpareto (SIDCo-GP: gamma in the first stage).

    `stages` is fixed, or 0: adapted per segment by the rule `adaptation` with `window` calls and `tolerance`. The first
    of several stages keeps `first_ratio`, the others the rest in equal ratios. `adapt_first`: the first ratio moves, in
    [0.05, 0.5], where adapting the stages does not help. `later_ratio` above 0: as many stages as it takes if each
    after the first keeps that much and the last one what is left; nothing is adapted then.
    """

    family: Annotated[str, FAMILIES] = "exponential"
    stages: Annotated[int, "[0, 20]"] = 0
    first_ratio: Annotated[float, "(0, 1)"] = 0.25
    adaptation: Annotated[str, RULES] = "robust"
    window: Annotated[int, 1] = 5
    tolerance: Annotated[float, "(0, 1)"] = 0.2
    adapt_first: bool = False
    later_ratio: Annotated[float, "[0, 1)"] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stages and self.later_ratio:
            raise ValueError("later_ratio decides how many stages there are; use stages=0 with it, or later_ratio=0")
        adapting = (self.adaptation, self.window, self.tolerance, self.adapt_first)
        if not self.adapts and adapting != ("robust", 5, 0.2, False):
            raise ValueError(
                "adaptation, window, tolerance and adapt_first have no effect where stages are not adapted; "
                "use stages=0 and later_ratio=0"
            )
        if self.adapt_first and not LEAST <= self.first_ratio <= MOST:
            raise ValueError(f"first_ratio must be in [{LEAST}, {MOST}] to be adapted, got {self.first_ratio}")
        if self.stages == 1 and self.first_ratio != 0.25:
            raise ValueError("first_ratio has no effect with stages=1; use stages=2 or more")

    @property
    def adapts(self) -> bool:
        """The number of stages changes in the course of the steps."""
        return not self.stages and not self.later_ratio


@compressors.register(SIDCoOptions())
class SIDCo(ThresholdSelector):
    """Right where the data is of the family; gpareto with two or three stages is the most reliable (D-22).

    Only what is not zero is fitted, for the ratio that is then wanted of it.
    """

    name = "sidco"
    summary = "SIDCo: threshold of an exponential, Pareto or gamma fit in several stages"
    source = "Abdelmoniem et al. 2021; D-22"
    options: SIDCoOptions

    def state_shapes(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """What adaptation knows of a segment; nothing where nothing is adapted."""
        if not self.options.adapts:
            return {}
        return {_STATE: (COLUMNS,), **({_FIRST: (FIRST_COLUMNS,)} if self.options.adapt_first else {})}

    def thresholds(self, batch: Batch, kernel: ModuleType) -> torch.Tensor:
        """Magnitudes above the quantile of the last fit; adapts the number of stages."""
        options = self.options
        first = over_parts(batch, "first", lambda _: options.first_ratio)
        if not options.adapts:
            return above(self._level(batch, kernel, over_parts(batch, "stages", self._stages), first))
        most = over_parts(batch, "most", lambda part: max_stages(part.density))
        state = _stacked(batch, _STATE)
        moving = _stacked(batch, _FIRST) if options.adapt_first else None
        if moving is not None:
            first = first_ratios(moving, options.first_ratio)
        threshold = above(self._level(batch, kernel, stages(state, most), first))
        ratio = kernel.count(batch, threshold) / sizes(batch)[1].clamp(min=1)
        how = Adaptation(options.adaptation, options.window, options.tolerance)
        changed = adapted(state, ratio, most, how)
        if moving is not None:
            middle = over_parts(batch, "middle", lambda part: middle_stages(part.density))
            moved, changed = adapted_first(moving, state, changed, ratio, middle, options.first_ratio, how)
            _unstack(batch, _FIRST, moved)
        _unstack(batch, _STATE, changed)
        return threshold

    def _level(self, batch: Batch, kernel: ModuleType, number: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
        family, later = self.options.family, self.options.later_ratio
        moments = kernel.moments(batch)
        n, _ = sizes(batch)
        density = over_parts(batch, "density", lambda part: part.density)
        ratio = (density * n / moments.nonzero).clamp(max=1)
        several = (number > 1) & (ratio < first)
        log_first, log_rest = torch.where(several, first, ratio).log(), (ratio / first).log()
        if later:
            number = 1 + (log_rest / math.log(later) - _ROUNDING).ceil()
            log_next = torch.full_like(n, math.log(later))
            log_last = log_rest - (number - 2) * log_next
        else:
            log_next = log_last = log_rest / (number - 1).clamp(min=1)

        body = Magnitudes.of(moments.nonzero, moments.absolute, moments.square, torch.zeros_like(n))
        if family == "gamma_gpareto":
            level = gamma(body, kernel.log_sum(batch) / moments.nonzero, log_first)
        else:
            level = _fit(family, body, log_first)
        for stage in range(1, self._most(batch)):
            active = several & (stage < number)
            if settled(active):
                break
            tail = kernel.tail(batch, torch.where(active, above(level), torch.nan))
            sample = Magnitudes.of(tail.count, tail.total, tail.square, tail.least)
            # nothing above the threshold, or all of it equal: there is nothing to fit, and the threshold stays
            kept = torch.where(number == stage + 1, log_last, log_next)
            level = torch.where(active & (sample.mean > 0), _fit(family, sample, kept), level)
        return level

    def _stages(self, part: Part) -> int:
        """Return how many stages there are without adaptation; zeros in the data can only make them fewer."""
        options = self.options
        if options.stages:
            return options.stages
        rest = math.log(min(1, part.density / options.first_ratio))
        return 1 + math.ceil(rest / math.log(options.later_ratio) - _ROUNDING)

    def _most(self, batch: Batch) -> int:
        if self.options.adapts:
            return max(max_stages(part.density) for part in batch.parts)
        return max(self._stages(part) for part in batch.parts)


def _stacked(batch: Batch, name: str) -> torch.Tensor:
    return torch.stack([state[name] for state in batch.states])


def _unstack(batch: Batch, name: str, changed: torch.Tensor) -> None:
    torch._foreach_copy_([state[name] for state in batch.states], list(changed.unbind()))


def _fit(family: str, sample: Magnitudes, log_ratio: torch.Tensor) -> torch.Tensor:
    return (exponential if family == "exponential" else gpareto)(sample, log_ratio)


def middle_stages(density: float) -> int:
    """Return half of the largest number of stages worth trying, rounded up."""
    return max(1, math.ceil(math.log(density) / math.log(0.5) / 2))


def first_ratios(state: torch.Tensor, start: float) -> torch.Tensor:
    """Return the ratio that the first stage keeps, float64 [S], from `state` [S, FIRST_COLUMNS]."""
    return (start + STEP * state[:, STEPS].double()).clamp(LEAST, MOST)


def adapted_first(
    state: torch.Tensor, before: torch.Tensor, after: torch.Tensor, ratio: torch.Tensor, middle: torch.Tensor,
    start: float, how: Adaptation,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Return the state [S, FIRST_COLUMNS] after one more call, and the state of the stages.

    `before` and `after` are those of the stages around the same call, `ratio` [S] what it selected of what was wanted,
    `middle` [S] as `middle_stages`.
    """
    mean = (before[:, SUM] + ratio.float()) / how.window
    ended = before[:, CALLS] + 1 >= how.window
    changes = state[:, CHANGES] + (ended & ((mean - 1).abs() > how.tolerance)).float()
    worse = (before[:, KNOWN] > 0) & ((mean - 1).abs() > (before[:, PREVIOUS] - 1).abs())
    due = ended & worse & (changes >= middle)

    now, direction = first_ratios(state, start), 1 - 2 * state[:, TURNED]
    at_bound = due & ((now <= LEAST + STEP / 2) | (now >= MOST - STEP / 2))
    off = (mean < 1 - how.tolerance / 2).float() - (mean > 1 + how.tolerance / 2).float()
    moved = due & ~at_bound & (off != 0)
    steps = torch.where(at_bound, 0, torch.where(moved, state[:, STEPS] + direction * off, state[:, STEPS]))
    direction = torch.where(at_bound, -direction, direction)
    again = after.clone()
    again[:, EXTRA] = torch.where(moved, middle.float() - 1, after[:, EXTRA])
    return torch.stack([steps, (1 - direction) / 2, torch.where(moved, 0, changes)], 1), again


_ALMOST_EXPONENTIAL = 1e-8


@dataclass(frozen=True, slots=True)
class Magnitudes:
    """Magnitudes from `base` on: their mean above it and their unbiased variance, 0 if there are fewer than two."""

    base: torch.Tensor
    mean: torch.Tensor
    variance: torch.Tensor

    @classmethod
    def of(cls, count: torch.Tensor, total: torch.Tensor, square: torch.Tensor, base: torch.Tensor) -> Magnitudes:
        """Return the sample with this count, sum and sum of squares."""
        variance = (square - total**2 / count) / (count - 1).clamp(min=1)
        return cls(base, total / count - base, torch.where(count > 1, variance.clamp(min=0), 0))


def exponential(sample: Magnitudes, log_ratio: torch.Tensor) -> torch.Tensor:
    """Return what a fraction exp(log_ratio) of an exponential distribution exceeds."""
    return sample.base - sample.mean * log_ratio


def gpareto(sample: Magnitudes, log_ratio: torch.Tensor) -> torch.Tensor:
    """Return what a fraction exp(log_ratio) of a generalised Pareto distribution exceeds; exponential without spread.

    kappa is minus the shape of the paper; always above -1/2, where two moments exist.
    """
    squared = sample.mean**2 / sample.variance
    kappa, scale = (squared - 1) / 2, sample.mean * (squared + 1) / 2
    curved = -scale * torch.expm1(kappa * log_ratio) / kappa
    level = sample.base + torch.where(kappa.abs() < _ALMOST_EXPONENTIAL, -scale * log_ratio, curved)
    return torch.where(sample.variance > 0, level, exponential(sample, log_ratio))


def gamma(sample: Magnitudes, mean_log: torch.Tensor, log_ratio: torch.Tensor) -> torch.Tensor:
    """Return about what a fraction exp(log_ratio) of a gamma distribution exceeds; `sample` is based on 0.

    A closed form, an upper bound for shapes up to 1 (the authors' plain variant); exponential without spread.
    """
    t = sample.mean.log() - mean_log
    shape = gamma_shape(t)
    level = -sample.mean / shape * (log_ratio + torch.lgamma(shape))
    return torch.where((t > 0) & (sample.variance > 0), level.clamp(min=0), exponential(sample, log_ratio))


def gamma_shape(t: torch.Tensor) -> torch.Tensor:
    """Return the shape whose logarithm of the mean exceeds the mean of logarithms by `t` > 0, nearly."""
    return (3 - t + ((t - 3) ** 2 + 24 * t).sqrt()) / (12 * t)


@dataclass(frozen=True, slots=True)
class Adaptation:
    """After every `window` calls, a mean ratio outside 1 +- `tolerance` changes the number of stages by one."""

    rule: str
    window: int
    tolerance: float


def max_stages(density: float) -> int:
    """Return the largest number of stages worth trying: each keeps at most half."""
    return max(1, math.ceil(math.log(density) / math.log(0.5)))


def stages(state: torch.Tensor, most: torch.Tensor) -> torch.Tensor:
    """Return the number of stages to fit, float64 [S], from `state` [S, COLUMNS] and the largest number `most` [S]."""
    return torch.minimum(1 + state[:, EXTRA].double(), most)


def adapted(state: torch.Tensor, ratio: torch.Tensor, most: torch.Tensor, how: Adaptation) -> torch.Tensor:
    """Return the state after one more call that selected `ratio` [S] of what was wanted."""
    calls, total = state[:, CALLS] + 1, state[:, SUM] + ratio.float()
    mean = total / how.window
    now, known, previous = stages(state, most).float(), state[:, KNOWN] > 0, state[:, PREVIOUS]
    direction = 1 - 2 * state[:, REVERSED]
    direction = torch.where(known & _turns(mean, previous, how), -direction, direction)
    too_many, too_few = mean > 1 + how.tolerance, mean < 1 - how.tolerance
    wanted = now + direction * (too_few.float() - too_many.float())
    after = torch.minimum(wanted.clamp(min=1), most.float())
    if how.rule == "robust":
        direction = torch.where(after != wanted, -direction, direction)
    ended = torch.stack(
        [after - 1, (1 - direction) / 2, torch.ones_like(mean), mean, torch.zeros_like(mean), torch.zeros_like(mean)], 1
    )
    goes_on = state.clone()
    goes_on[:, SUM], goes_on[:, CALLS] = total, calls
    return torch.where((calls >= how.window)[:, None], ended, goes_on)


def _turns(mean: torch.Tensor, previous: torch.Tensor, how: Adaptation) -> torch.Tensor:
    if how.rule == "steady":
        return torch.zeros_like(mean, dtype=torch.bool)
    if how.rule == "bracket":
        rising = (mean > previous) & (previous < 1 - how.tolerance)
        falling = (mean < previous) & (previous > 1 + how.tolerance)
        return ~(rising | falling)
    return (mean - 1).abs() > (previous - 1).abs()
