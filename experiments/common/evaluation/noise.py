"""The noise of a seed: how far runs of a method differ by seed, beyond what the seed does to every method alike."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf, log, sqrt
from statistics import NormalDist, fmean

from experiments.common.figures.auto import AUTO
from ssfx.core.lazy import numpy as np
from ssfx.core.rows import Row
from ssfx.lab.calibration import long_runs

FEWEST = 2
"""Seeds that a method and its baseline share from which on a gap is judged."""
FREEDOM = 6
"""Degrees of freedom from which on the noise of a seed is known."""
Score = Callable[[Row], float]


def noise_of(rows: Sequence[Row], score: Score) -> tuple[float | None, int]:
    """Return the standard deviation over seeds and its degrees of freedom, of methods with half of dense quality.

    Methods start a seed from the same weights and see the same samples. What that does to all of them cancels between
    two runs of the seed, so noise is what a value for each method plus one for each seed leaves, by least squares.
    """
    finals: dict[str, dict[int, float]] = {}
    dense = [score(row) for row in rows if long_runs.is_dense(row)]
    for row in (row for row in rows if row.case.scheme != AUTO):
        finals.setdefault(replace(row.case, seed=0, repeat=0).run_id, {})[row.case.seed] = score(row)
    floor = fmean(dense) - log(2) if dense else -inf
    several = [own for own in finals.values() if len(own) >= FEWEST and fmean(own.values()) >= floor]
    if not several:
        return None, 0
    seeds = sorted({seed for own in several for seed in own})
    runs = [(method, seed, value) for method, own in enumerate(several) for seed, value in own.items()]
    of = np.zeros((len(runs), len(several) + len(seeds)))
    for line, (method, seed, _) in enumerate(runs):
        of[line, method] = of[line, len(several) + seeds.index(seed)] = 1.0
    values = np.array([value for _, _, value in runs])
    fit, _, rank, _ = np.linalg.lstsq(of, values, rcond=None)
    freedom = len(runs) - int(rank)
    if freedom < FREEDOM:
        return None, freedom
    return sqrt(float(np.square(values - of @ fit).sum()) / freedom), freedom


def t95(freedom: int) -> float:
    """Return the quantile of Student's t that leaves 5 % on both sides, by Cornish and Fisher's expansion."""
    z = NormalDist().inv_cdf(0.975)
    terms = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + sum(term / float(freedom) ** power for power, term in enumerate(terms, 1))
