"""The sparsifiers of the MiCRO paper as its figures show them, in long runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from experiments.common.claims.verdicts import Outcome, Verdict
from experiments.common.evaluation.gaps import LONG, usual
from experiments.common.evaluation.quality_curves import SCALE, curve
from ssfx.core.lazy import numpy as np
from ssfx.core.rows import Row

METHODS = {"topk": "Top-k", "cltk": "CLT-k", "hard_threshold": "hard threshold", "micro": "MiCRO"}
COLOURS = {"Top-k": "#b8860b", "CLT-k": "#3f7f4f", "hard threshold": "#d55e00", "MiCRO": "#5b2a86"}
GROUP = 4
"""Workers of the runs that are compared; those of other numbers are for Fig. 7."""
DENSITY = 0.01
"""Of the paper's two, the one of our runs."""
ONE = f"one network and density of the paper's 12 settings, {GROUP} workers, {SCALE}"


def method(row: Row) -> str:
    """Return the sparsifier of a long run as the paper calls it, "" for other runs."""
    case = row.case
    here = case.experiment == LONG and case.density == DENSITY and usual(row)
    return METHODS.get(case.scheme, "") if here else ""


def runs(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Return the long runs on GROUP workers by sparsifier."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row.case.world_size == GROUP and (name := method(row)):
            found.setdefault(name, []).append(row)
    return found


def network(methods: Mapping[str, Sequence[Row]]) -> str:
    """Return the network of the runs, "" without any."""
    return next((row.case.model for own in methods.values() for row in own), "")


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


def steps_to_common(methods: Mapping[str, Sequence[Row]]) -> dict[str, list[float]]:
    """Return, by method and run, the steps until the highest accuracy that every one of the runs reached."""
    best = {name: [_best_so_far(row) for row in own] for name, own in methods.items()}
    tops = [points[-1][1] for own in best.values() for points in own if points]
    if not tops or not all(points for own in best.values() for points in own):
        return {}
    level = min(tops)
    return {name: [next(step for step, top in points if top >= level) for points in own] for name, own in best.items()}


def judged_times(claim: str, pairs: Sequence[tuple[Sequence[float], Sequence[float]]], calibration: str) -> Verdict:
    """Return the verdict on an order of times: in every pair those of the first, a time a seed, are the shorter ones.

    A pair is in order, or contradicts it, where all seeds are; where they mix, it is open.
    """
    states = [max(a) < min(b) if max(a) < min(b) or min(a) > max(b) else None for a, b in pairs]
    right, wrong = states.count(True), states.count(False)
    outcome: Outcome = "disagrees" if wrong else "agrees" if right == len(states) else "partly" if right else (
        "not comparable")  # fmt: skip
    text = f"shorter for all seeds in {right} of {len(states)} pairs, longer for all in {wrong}"
    reason = f"Steps of long runs ({ONE}) times simulated steps of the paper's networks on its cluster."
    return Verdict(claim, outcome, text, "simulated", calibration, reason)


def _best_so_far(row: Row) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    own = curve(row)
    for step, value in zip(own.get("step", ()), own.get("top1", ()), strict=False):
        if step is not None and value is not None:
            found.append((step, max(value, found[-1][1] if found else value)))
    return found
