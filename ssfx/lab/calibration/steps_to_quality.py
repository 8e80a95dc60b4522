"""How many steps a run took to the quality that dense training of the same seed had reached, from their curves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from ssfx.core.curves import points
from ssfx.core.rows import Row
from ssfx.lab.results.comparisons import Panel
from ssfx.lab.workloads.metrics.tally import QUALITY, better

HORIZONS = (0.25, 0.5, 1.0)
"""Shares of a dense training at whose end the steps of others are compared."""
Point = tuple[float, float]


@dataclass(frozen=True)
class Multiple:
    """Steps to a quality over those of dense training, which reached it within `dense_steps` steps.

    Median and range over runs with a dense run of their seed. Runs that never reached it count with all their steps;
    `unreached` says how many these are, and the multiple is then at least so much.
    """

    dense_steps: float
    median: float
    low: float
    high: float
    runs: int
    unreached: int

    @property
    def at_least(self) -> str:
        """ ">" where half of the runs or more never reached it."""
        return ">" if 2 * self.unreached >= self.runs else ""

    def __str__(self) -> str:
        spread = f" ({self.low:.2f} to {self.high:.2f})" if self.runs > 1 else ""
        return f"{self.at_least}{self.median:.2f}x{spread}"


def multiples(panel: Panel, label: str) -> list[Multiple]:
    """Return the multiples of the runs of a bar at HORIZONS; none without curves of it and of dense runs."""
    dense = {row.case.seed: row for row in panel.dense if row.curve}
    pairs = [(dense[row.case.seed], row) for row in panel.bars[label] if row.curve and row.case.seed in dense]
    metric = _metric(row for pair in pairs for row in pair)
    return [found for share in HORIZONS if metric and (found := _multiple(pairs, share, metric)) is not None]


def _multiple(pairs: Sequence[tuple[Row, Row]], share: float, metric: str) -> Multiple | None:
    """Return the multiple at the quality that dense runs had after a share of their steps."""
    found, unreached, ends = [], 0, []
    for dense, other in pairs:
        levels = [(step, level) for step, level in best_so_far(dense, metric) if step <= share * dense.case.steps]
        if not levels:
            return None
        step, level = levels[-1]
        there = steps_to(best_so_far(other, metric), level, metric)
        unreached += there is None
        found.append((other.case.steps if there is None else there) / step)
        ends.append(share * dense.case.steps)
    return Multiple(max(ends), median(found), min(found), max(found), len(found), unreached) if found else None


def _metric(rows: Iterable[Row]) -> str:
    """Return the quality that all curves have; "" for none."""
    there = [{name for name, values in row.curve.items() if any(v is not None for v in values)} for row in rows]
    return next((name for name in QUALITY if there and all(name in names for names in there)), "")


def best_so_far(row: Row, metric: str) -> list[Point]:
    """Return (steps, quality) wherever a run's quality was better than ever before."""
    found: list[Point] = []
    for point in points(row):
        step, value = point["step"], point[metric]
        if step is not None and value is not None and (
            not found or (value != found[-1][1] and better(metric, value, found[-1][1]))
        ):  # fmt: skip
            found.append((step, value))
    return found


def steps_to(path: Sequence[Point], level: float, metric: str) -> float | None:
    """Return the steps to a quality, in a straight line between measurements; None where it was never reached."""
    before: Point | None = None
    for step, value in path:
        if better(metric, value, level):
            if before is None:
                return step
            return before[0] + (step - before[0]) * (level - before[1]) / (value - before[1])
        before = (step, value)
    return None
