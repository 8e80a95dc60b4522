"""How much faster one scheme is than another, with an interval: from the raw iteration times of their runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ssfx.core.lazy import numpy as np
from ssfx.core.rows import Row

RESAMPLES = 2000
LEVEL = 0.95
"""Of the interval."""


@dataclass(frozen=True)
class Speedup:
    """`ratio` is the median iteration time of the baseline over that of the scheme; above 1 the scheme is faster.

    `low`, `high`: the interval in which it lies with 95 %, by bootstrap over runs and over iterations within them;
    None where there is one exact (simulated) time of each.
    """

    ratio: float
    low: float | None = None
    high: float | None = None

    @property
    def clear(self) -> bool:
        """True when the interval leaves no doubt which one is faster; a simulated difference is what it is."""
        return self.low is None or self.high is None or not self.low <= 1 <= self.high

    def __str__(self) -> str:
        if self.low is None:
            return f"{self.ratio:.2f}x"
        return f"{self.ratio:.2f}x ({self.low:.2f} to {self.high:.2f})"


def speedup(baseline: Sequence[Row], rows: Sequence[Row]) -> Speedup:
    """Return the speedup of `rows` over `baseline`: all runs of one case each, with their samples."""
    ours, theirs = (np.median([row.metrics["iteration_s"] or 0.0 for row in group]) for group in (rows, baseline))
    ratio = float(theirs / ours)
    if not all(row.samples.get("iteration_s") for row in (*baseline, *rows)):
        return Speedup(ratio)
    chance = np.random.default_rng(0)
    medians = [_resampled(group, chance) for group in (baseline, rows)]
    low, high = np.quantile(medians[0] / medians[1], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Speedup(ratio, float(low), float(high))


def _resampled(rows: Sequence[Row], chance: np.random.Generator) -> np.ndarray:
    """Return the medians of RESAMPLES resamples [RESAMPLES]: runs with replacement, then iterations of each."""
    times = [np.asarray(row.samples["iteration_s"]) for row in rows]
    picked = chance.integers(len(times), size=(RESAMPLES, len(times)))
    one = np.stack([np.median(chance.choice(run, size=(RESAMPLES, len(run))), axis=1) for run in times])
    medians: np.ndarray = np.median(one[picked, np.arange(RESAMPLES)[:, None]], axis=1)
    return medians
