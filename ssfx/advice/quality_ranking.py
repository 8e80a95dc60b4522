"""Schemes ranked by time to quality: steps that recorded runs needed, times the simulated iteration on a cluster."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ssfx.advice.setting import Setting
from ssfx.advice.time_to_quality import TimeToQuality, time_to_quality, way
from ssfx.core.case import Case
from ssfx.core.errors import ConfigError
from ssfx.core.origin import Origin
from ssfx.core.rows import Row
from ssfx.schemes.make_plan import make_plan
from ssfx.simulator import simulate

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
