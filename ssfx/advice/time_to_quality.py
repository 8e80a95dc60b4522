"""Time to quality: steps until a target, which no cluster changes, times the iteration time on a cluster.

Steps are those that recorded runs needed. Schemes are ranked by the product, or it is said how long each takes to be as
good as dense training.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from ssfx.advice.ranking import Advice, Entry
from ssfx.advice.setting import Setting
from ssfx.core.case import Case
from ssfx.core.errors import ConfigError
from ssfx.core.lazy import numpy as np
from ssfx.core.numbers import rounded
from ssfx.core.origin import Origin
from ssfx.core.rows import Row
from ssfx.schemes.make_plan import make_plan
from ssfx.schemes.search.auto_steps import Needed
from ssfx.simulator import simulate

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
            scheme, model, case.target_metric, case.target_value, len(rows), sum(map(math.isfinite, steps)),
            bootstrap(steps, [1.0], seed), bootstrap(steps, iteration_s, seed) if iteration_s else None, kind,
        )  # fmt: skip
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


@dataclass(frozen=True)
class TrainingTime:
    """One scheme: the steps that it needs for what dense training reaches in `train_steps`, and the seconds of a step.

    `needed` has no share where no recorded run says how many steps it takes; then `steps` and `time_s` are infinite.
    """

    entry: Entry
    needed: Needed
    train_steps: int

    @property
    def steps(self) -> float:
        """Steps of this scheme."""
        return self._steps(self.needed.share)

    @property
    def time_s(self) -> float:
        """Seconds of these steps."""
        return self.steps * self.entry.iteration_s

    @property
    def worst_s(self) -> float | None:
        """Seconds of the steps that the worst recorded run needed, None where none holds."""
        return None if self.needed.worst is None else self._steps(self.needed.worst) * self.entry.iteration_s

    def _steps(self, share: float | None) -> float:
        return inf if share is None else self.train_steps * (1 + share)


def training_times(advice: Advice) -> list[TrainingTime]:
    """Return the schemes of an advice by the time of a training, fastest first; last those whose steps are not known.

    A scheme with long runs of its own, at this density, has their law; every other one that of its worst method.
    """
    times = [TrainingTime(entry, entry.needed, advice.setting.steps) for entry in advice.entries]
    return sorted(times, key=lambda one: (one.time_s, one.entry.iteration_s, one.entry.scheme))


EXPERIMENT = "time_to_quality"


def quality_ranking(setting: Setting, rows: Sequence[Row]) -> list[TimeToQuality]:
    """Return what each scheme of the recorded runs needs to their target on the cluster of `setting`, fastest first.

    Steps are those of `rows` of experiment=time_to_quality with this model, seed by seed; compressors, densities and
    options are the runs' own. Iterations are simulated. Of several tasks (data, target, optimizer, learning rate, first
    weights, samples a step) the one with most runs is taken. ConfigError where no such run exists, or where a step here
    has another number of samples, which would need other steps.
    """
    model, same = setting.profile.model, recorded_of(setting, rows)
    if not same:
        known = [row for row in rows if row.case.experiment == EXPERIMENT and row.case.target_metric is not None]
        models = ", ".join(sorted({row.case.model for row in known})) or "no model"
        raise ConfigError(
            f"target=quality: steps to a target are recorded of {models}, not of {model}; ssfx run "
            f"experiment={EXPERIMENT} workload=W target_metric=top1 target_value=0.9 records them"
        )
    (task, _), *_ = Counter(_task(row.case) for row in same).most_common(1)
    chosen = [row for row in same if _task(row.case) == task]
    samples, ranks = _samples(chosen[0].case), setting.cluster.world_size
    if samples != setting.profile.batch_size * ranks:
        how = f"write batch_size={samples // ranks}" if samples % ranks == 0 else "choose fewer ranks"
        how += ", or train_steps=N for steps by the runs of other models"
        raise ConfigError(
            f"target=quality: the recorded runs of {model} have {samples} samples a step, and {ranks} ranks with "
            f"{setting.profile.batch_size} each would need another number of steps; {how}"
        )
    each = {way(row.case): row for row in chosen}
    timed = [
        replace(row, metrics={"iteration_s": _iteration_s(setting, row.case)}, samples={}, origin=Origin("simulated"))
        for row in each.values()
    ]
    found = time_to_quality(chosen, timed)
    return sorted(found.values(), key=lambda one: (one.time_s.value if one.time_s else math.inf, one.scheme))


def recorded_of(setting: Setting, rows: Sequence[Row]) -> list[Row]:
    """Return the rows of experiment=time_to_quality of the setting's model that have a target."""
    return [
        row for row in rows
        if row.case.experiment == EXPERIMENT and row.case.target_metric is not None
        and row.case.model == setting.profile.model
    ]  # fmt: skip


def _task(case: Case) -> tuple[object, ...]:
    """Return what runs must share for their steps to be comparable: data, target, and how they train."""
    return (
        case.dataset, case.target_metric, case.target_value, case.optimizer, case.lr, case.initial_weights,
        _samples(case),
    )  # fmt: skip


def _samples(case: Case) -> int:
    return case.world_size * case.batch_size * case.accumulate


def _iteration_s(setting: Setting, case: Case) -> float:
    costs = setting.system.planning_costs(case.compressor, case.density)
    plan = make_plan(case.scheme, setting.profile, costs, case.plan_options)
    return simulate(plan, setting.profile, setting.system).iteration_s
