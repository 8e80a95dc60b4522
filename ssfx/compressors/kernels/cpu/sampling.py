"""Where a threshold's sample lies: runs of consecutive floats, one per stride, shifted by a number that looks random.

Equal distances would meet equal columns of a weight matrix. Source: D-10.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ssfx.compressors.kernels.interface import Bound, Rule

RUN = 16
"""Consecutive floats of one run: a cache line."""
ID_STEP = 2654435761
"""What a tensor's number adds to the seed of its sample."""
_SMALLEST = 256


@dataclass(frozen=True, slots=True)
class DrawnSample:
    """`runs` runs of RUN elements, one every `stride`; a threshold is the `rank`-th largest of them.

    stride = RUN means that everything is looked at.
    """

    runs: int
    stride: int
    rank: int


def sample_of(numel: int, bound: Bound, rule: Rule) -> DrawnSample:
    """Return the sample from which a segment of `numel` elements takes its threshold."""
    if numel == 0:
        return DrawnSample(1, RUN, 1)
    if rule.tail is None or bound.least == bound.most:
        # The cheapest for an exact choice costs as much as the candidates beyond it; fewer than it are rare.
        density = bound.wanted / numel
        return _sample(numel, max(_SMALLEST, (2 * bound.wanted / math.sqrt(density)) ** (2 / 3)), density, deviations=3)
    return sample_for_threshold(numel, bound.wanted / numel, rule.tail, rule.sample_fraction)


def sample_for_threshold(numel: int, density: float, tail: int, fraction: float) -> DrawnSample:
    """Return the sample whose threshold about `density` of the elements reach: `tail` samples lie above it."""
    return _sample(numel, max(fraction * numel, tail / density), density, deviations=0)


def _sample(numel: int, size: float, density: float, deviations: float) -> DrawnSample:
    runs = max(1, math.ceil(min(size, numel) / RUN))
    stride = numel // runs
    if stride < 2 * RUN:
        runs, stride = math.ceil(numel / RUN), RUN
    expected = runs * RUN * density
    return DrawnSample(runs, stride, max(1, math.ceil(expected + deviations * math.sqrt(expected) - 1e-6)))


def jitter(seed: int, run: int, span: int) -> int:
    """Return the shift in [0, span) of one run; `seed` below 2^32."""
    mixed = ((seed + run) * 2654435761) & 0xFFFFFFFF
    return (mixed ^ (mixed >> 16)) % span
