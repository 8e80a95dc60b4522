"""Steps until a target that recorded runs needed, which no cluster changes, times the iteration time on one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ssfx.core.case import Case
from ssfx.core.lazy import numpy as np
from ssfx.core.numbers import rounded
from ssfx.core.rows import Row

DRAWS = 2000
"""Resamples of the bootstrap."""

LEVEL = 0.95
"""Share of the resamples between `low` and `high`."""


@dataclass(frozen=True)
class Estimate:
    """A value with its bootstrap interval; infinite where the target is reached in no more than half the resample."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return "{} ({} to {})".format(*(rounded(one, 3) for one in (self.value, self.low, self.high)))


@dataclass(frozen=True)
class TimeToQuality:
    """What one scheme needs to reach one target of one task.

    `reached` of `runs` seeds reached it. `steps` is their median, a run that never got there counting as infinite;
    `time_s` is steps times the iteration time, None without one. `kind` says how that was obtained: measured, emulated,
    simulated, or "" without.
    """

    scheme: str
    """Scheme, compressor and density, without model and ranks: equal for rows that differ in the cluster alone."""
    model: str
    metric: str
    target: float
    runs: int
    reached: int
    steps: Estimate
    time_s: Estimate | None
    kind: str


def way(case: Case) -> str:
    """Return what about a case decides how many steps it needs: scheme, compressor, density, memory and options."""
    density = f"@{case.density:g}" if case.density is not None else ""
    options = ",".join(f"{key}={value}" for key, value in sorted(case.scheme_options.items()))
    parts = [f"{case.scheme}({options})" if options else case.scheme]
    parts += [f"{case.compressor or ''}{density}"] if case.compressor is not None or density else []
    parts += [case.memory] if case.memory not in (None, "residual") else []
    return "/".join(parts)


def time_to_quality(
    quality: Iterable[Row], timed: Iterable[Row] = (), *, seed: int = 0
) -> dict[tuple[str, str], TimeToQuality]:
    """Return by (model, way of the case) how long each scheme takes to the target that rows of `quality` declare.

    `quality` are finished runs with a target, one a seed, with equally many samples a step (else ValueError: how many
    steps are needed depends on that); their own times do not count. `timed` are rows of any kind,
    of any cluster, of the same model and scheme, with the iteration time there. Those of one scheme must be of one kind
    and cluster; ValueError otherwise, because a mean over clusters is the time of none.
    """
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in quality:
        if row.case.target_metric is not None:
            groups.setdefault((row.case.model, way(row.case)), []).append(row)
    times = _times(timed)
    found = {}
    for (model, scheme), rows in groups.items():
        case = rows[0].case
        sizes = {row.case.world_size * row.case.batch_size * row.case.accumulate for row in rows}
        if len(sizes) > 1:
            raise ValueError(f"runs of {scheme} have {sorted(sizes)} samples a step, and so other steps; choose one")
        assert case.target_metric is not None
        assert case.target_value is not None
        steps = [_steps(row) for row in rows]
        kind, iteration_s = times.get((model, scheme), ("", []))
        found[model, scheme] = TimeToQuality(
            scheme,
            model,
            case.target_metric,
            case.target_value,
            len(rows),
            sum(map(math.isfinite, steps)),
            bootstrap(steps, [1.0], seed),
            bootstrap(steps, iteration_s, seed) if iteration_s else None,
            kind,
        )
    return found


def bootstrap(steps: Sequence[float], iteration_s: Sequence[float], seed: int = 0) -> Estimate:
    """Return median steps times median iteration time, and the interval of that over resamples of both.

    Seeds and iterations are drawn with replacement and independently of each other. Infinite steps stay what they are,
    so that an interval which half of the seeds do not close has no upper end. ValueError without steps or times.
    """
    if not steps or not iteration_s:
        raise ValueError("a time to quality needs steps of at least one run and at least one iteration time")
    rng = np.random.default_rng(seed)
    drawn = _medians(rng, steps) * _medians(rng, iteration_s)
    low, high = (_quantile(drawn.tolist(), at) for at in ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return Estimate(_median(list(steps)) * _median(list(iteration_s)), low, high)


def _medians(rng: np.random.Generator, values: Sequence[float]) -> np.ndarray:
    drawn = np.sort(rng.choice(np.asarray(values, float), (DRAWS, len(values))), axis=1)
    return drawn[:, len(values) // 2]  # the upper one of an even number: the middle of a number and infinity is neither


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def _quantile(values: list[float], at: float) -> float:
    return sorted(values)[min(len(values) - 1, int(at * len(values)))]


def _steps(row: Row) -> float:
    found = row.metrics.get("steps_to_target")
    return math.inf if found is None else found


def _times(rows: Iterable[Row]) -> Mapping[tuple[str, str], tuple[str, list[float]]]:
    """Return the kind and the iteration times of rows by model and way of the case."""
    found: dict[tuple[str, str], tuple[str, list[float]]] = {}
    where: dict[tuple[str, str], tuple[str, str]] = {}
    for row in rows:
        key = row.case.model, way(row.case)
        here = row.origin.kind, f"{row.case.cluster} x{row.case.world_size} {row.origin.hardware}"
        if where.setdefault(key, here) != here:
            raise ValueError(f"times of {key[1]} are of {where[key]} and of {here}; choose one")
        seconds: Sequence[float | None] = row.samples.get("iteration_s") or [row.metrics["iteration_s"]]
        found.setdefault(key, (row.origin.kind, []))[1].extend(one for one in seconds if one is not None)
    return found
