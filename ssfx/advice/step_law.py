"""How many more steps a method needs than dense training, by the length of training: a delay plus a factor.

Extra steps = delay + factor x dense steps, from curves of experiment=long_quality. A short task cannot tell a late
start (error feedback sends a coordinate when its residual has grown) from progress that is slower throughout.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import fmean, quantiles

from ssfx.results.curves import points
from ssfx.results.rows import Row
from ssfx.workloads.metrics.tally import better

EXPERIMENT = "long_quality"
FEWEST_STEPS = 1000
"""Steps that a run must have had: in a shorter one a delay looks like a factor."""
DRAWS = 1000
"""Of the bootstrap over runs."""
FEWEST_RUNS = 3
"""Runs below which no interval is given."""
Interval = tuple[float, float]
Pair = tuple[float, float]


@dataclass(frozen=True)
class StepLaw:
    """Extra steps of one method over dense training; intervals are of 95 % over runs, None of fewer than FEWEST_RUNS.

    unreached: the share of the levels of quality of dense training that the method never came to; the fit leaves them
    out, so that with many of them the law is too kind. longest_steps: of the dense runs that it rests on.
    """

    method: str
    tasks: tuple[str, ...]
    runs: int
    delay_steps: float
    factor: float
    unreached: float
    longest_steps: int
    delay_interval: Interval | None = None
    factor_interval: Interval | None = None

    def more_steps(self, train_steps: int) -> float:
        """Return the extra steps of a training of so many dense steps, as a share of them; ValueError below 1."""
        if train_steps < 1:
            raise ValueError(f"train_steps must be at least 1, got {train_steps}")
        return self.delay_steps / train_steps + self.factor


def step_laws(rows: Iterable[Row]) -> dict[str, StepLaw]:
    """Return the law of every method of the rows, by its label; runs are compared with dense ones of task and seed."""
    long = [row for row in rows if row.case.experiment == EXPERIMENT and row.case.steps >= FEWEST_STEPS and row.curve]
    dense = {_place(row): row for row in long if row.case.scheme == "ddp" and row.case.compressor is None}
    runs: dict[str, list[Row]] = {}
    for row in long:
        if _place(row) in dense and row is not dense[_place(row)]:
            runs.setdefault(method(row), []).append(row)
    found = {label: _law(label, own, dense) for label, own in runs.items()}
    return {label: law for label, law in sorted(found.items()) if law is not None}


def method(row: Row) -> str:
    """Return what tells the methods of the rows apart, in a few words."""
    case = row.case
    parts = [case.scheme, *([case.compressor] if case.compressor and case.compressor != case.scheme else [])]
    memory = f" memory={case.memory}" if case.memory not in (None, "none", "residual") else ""
    return "/".join(parts) + ("" if case.density is None else f"@{case.density:g}") + memory


def extra_steps(dense: Row, other: Row) -> tuple[list[Pair], int]:
    """Return (dense steps, extra steps) for every new best quality of `dense` that `other` reached, and how many it
    did not; between two measurements quality is taken to change in a straight line, and its best so far counts."""
    metric = str(dense.case.target_metric)
    levels, path = _best(dense, metric), _best(other, metric)
    reached = [(step, _steps_to(path, level, metric)) for step, level in levels]
    known = [(step, there - step) for step, there in reached if there is not None]
    return known, len(reached) - len(known)


def fitted(pairs: Sequence[Pair]) -> tuple[float, float]:
    """Return delay and factor with the least squares of relative extra steps; the factor alone of a single horizon."""
    inverse = [1 / steps for steps, _ in pairs]
    shares = [extra / steps for steps, extra in pairs]
    middle, mean = fmean(inverse), fmean(shares)
    spread = sum((x - middle) ** 2 for x in inverse)
    if not spread:
        return 0.0, mean
    delay = sum((x - middle) * (y - mean) for x, y in zip(inverse, shares, strict=True)) / spread
    return delay, mean - delay * middle


def _law(label: str, rows: Sequence[Row], dense: Mapping[tuple[str, int], Row]) -> StepLaw | None:
    measured = [extra_steps(dense[_place(row)], row) for row in rows]
    clusters = [pairs for pairs, _ in measured if pairs]
    if not clusters:
        return None
    delay, factor = fitted([pair for pairs in clusters for pair in pairs])
    levels = sum(len(pairs) + missed for pairs, missed in measured)
    law = StepLaw(
        label, tuple(sorted({row.case.model for row in rows})), len(rows), delay, factor,
        sum(missed for _, missed in measured) / levels, max(row.case.steps for row in rows),
    )  # fmt: skip
    if len(clusters) < FEWEST_RUNS:
        return law
    draw = random.Random(0)
    fits = [fitted([p for pairs in draw.choices(clusters, k=len(clusters)) for p in pairs]) for _ in range(DRAWS)]
    kept = {field.name: getattr(law, field.name) for field in fields(law) if not field.name.endswith("_interval")}
    return StepLaw(
        **kept, delay_interval=_middle(fits, lambda fit: fit[0]), factor_interval=_middle(fits, lambda fit: fit[1])
    )


def _middle(fits: Sequence[tuple[float, float]], part: Callable[[tuple[float, float]], float]) -> Interval:
    cuts = quantiles(map(part, fits), n=40)
    return cuts[0], cuts[-1]


def _place(row: Row) -> tuple[str, int]:
    return row.case.model, row.case.seed


def _best(row: Row, metric: str) -> list[tuple[float, float]]:
    """Return (steps, quality) wherever a run's quality was better than ever before."""
    found: list[tuple[float, float]] = []
    for point in points(row):
        step, value = point["step"], point[metric]
        if step is not None and value is not None and (
            not found or (value != found[-1][1] and better(metric, value, found[-1][1]))
        ):  # fmt: skip
            found.append((step, value))
    return found


def _steps_to(path: Sequence[tuple[float, float]], level: float, metric: str) -> float | None:
    before: tuple[float, float] | None = None
    for step, value in path:
        if better(metric, value, level):
            if before is None:
                return step
            return before[0] + (step - before[0]) * (level - before[1]) / (value - before[1])
        before = (step, value)
    return None
