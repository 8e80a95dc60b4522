"""The sparsifiers of the MiCRO paper as its figures show them, in small training runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from statistics import fmean

from experiments.common.evaluation.gaps import longest
from experiments.common.evaluation.quality_curves import curve
from ssfx.core.lazy import numpy as np
from ssfx.core.rows import Row

METHODS = {"topk": "Top-k", "cltk": "CLT-k", "hard_threshold": "hard threshold", "micro": "MiCRO"}
COLOURS = {"Top-k": "#b8860b", "CLT-k": "#3f7f4f", "hard threshold": "#d55e00", "MiCRO": "#5b2a86"}
GROUP = 4
"""Workers of the runs that are compared; those of other numbers are for Fig. 7."""


def method(row: Row) -> str:
    """Return the sparsifier of a row as the paper calls it, "" for another scheme."""
    return METHODS.get(row.case.scheme, "")


def runs(rows: Sequence[Row], wanted: Collection[str]) -> list[Row]:
    """Return the rows on GROUP workers: of long runs where these have every sparsifier that is wanted."""
    own = [row for row in rows if row.case.world_size == GROUP]
    return longest(own, method, set(wanted))


def late(rows: Sequence[Row]) -> float | None:
    """Return the density that all ranks sent over the one that was set, mean of the second half; None if unknown."""
    ratios = []
    for row in rows:
        found = [value for value in curve(row).get("union_density", []) if value is not None]
        if found and row.case.density:
            ratios.append(fmean(found[len(found) // 2 :]) / row.case.density)
    return fmean(ratios) if ratios else None


def scaled(row: Row) -> tuple[list[float], list[float], list[float]]:
    """Return steps, thresholds, and errors times the ratio of their sums; empty without both."""
    own = curve(row)
    points = [
        (step, threshold, error)
        for step, threshold, error in zip(
            own.get("step", []), own.get("threshold", []), own.get("error_norm", []), strict=False
        )
        if step is not None and threshold is not None and error is not None
    ]
    if not points:
        return [], [], []
    steps, thresholds, errors = (list(column) for column in zip(*points, strict=True))
    ratio = sum(thresholds) / sum(errors) if sum(errors) else 0.0
    return steps, thresholds, [ratio * error for error in errors]


def follows(row: Row) -> float:
    """Return the rank correlation of threshold and error over the steps, in [-1, 1]."""
    _, thresholds, errors = scaled(row)
    first, second = (np.argsort(np.argsort(values)).astype(np.float64) for values in (thresholds, errors))
    if len(thresholds) < 3:
        return 0.0
    return float(np.asarray(np.corrcoef(np.stack([first, second])))[0, 1])
