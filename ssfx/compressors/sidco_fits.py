"""Quantiles of the distributions that SIDCo fits by moments; vectors over segments, float64 [S].

Source: D-22; thresholds do not depend on the unit of a, so a is not normalised.
"""

from __future__ import annotations

from dataclasses import dataclass

from ssfx.core.lazy import torch

_ALMOST_EXPONENTIAL = 1e-8


@dataclass(frozen=True, slots=True)
class Sample:
    """Magnitudes from `base` on: their mean above it and their unbiased variance, 0 if there are fewer than two."""

    base: torch.Tensor
    mean: torch.Tensor
    variance: torch.Tensor

    @classmethod
    def of(cls, count: torch.Tensor, total: torch.Tensor, square: torch.Tensor, base: torch.Tensor) -> Sample:
        """Return the sample with this count, sum and sum of squares."""
        variance = (square - total**2 / count) / (count - 1).clamp(min=1)
        return cls(base, total / count - base, torch.where(count > 1, variance.clamp(min=0), 0))


def exponential(sample: Sample, log_ratio: torch.Tensor) -> torch.Tensor:
    """Return what a fraction exp(log_ratio) of an exponential distribution exceeds."""
    return sample.base - sample.mean * log_ratio


def gpareto(sample: Sample, log_ratio: torch.Tensor) -> torch.Tensor:
    """Return what a fraction exp(log_ratio) of a generalised Pareto distribution exceeds; exponential without spread.

    kappa is minus the shape of the paper; always above -1/2, where two moments exist.
    """
    squared = sample.mean**2 / sample.variance
    kappa, scale = (squared - 1) / 2, sample.mean * (squared + 1) / 2
    curved = -scale * torch.expm1(kappa * log_ratio) / kappa
    level = sample.base + torch.where(kappa.abs() < _ALMOST_EXPONENTIAL, -scale * log_ratio, curved)
    return torch.where(sample.variance > 0, level, exponential(sample, log_ratio))


def gamma(sample: Sample, mean_log: torch.Tensor, log_ratio: torch.Tensor) -> torch.Tensor:
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
