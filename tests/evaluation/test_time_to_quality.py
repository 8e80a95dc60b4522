"""Steps to a target times the iteration time, with intervals over seeds."""

import math
from dataclasses import replace

import pytest
from results.test_store import make_row
from workloads.fakes import make_case

from experiments.common.evaluation.time_to_quality import bootstrap, time_to_quality, way
from ssfx.core.rows import Row


def quality_row(seed: int, steps: float | None, **changes: object) -> Row:
    case = make_case(target_metric="top1", target_value=0.9, evaluate=True, evaluate_every=1, seed=seed, **changes)
    row = make_row()
    return Row(case.run_id, case, {"steps_to_target": steps}, row.origin)


def timed_row(iteration_s: float, **changes: object) -> Row:
    case = make_case(**changes)
    return Row(case.run_id, case, {"iteration_s": iteration_s}, make_row().origin)


def test_steps_are_the_median_and_times_that_of_an_iteration_elsewhere() -> None:
    rows = [quality_row(seed, steps) for seed, steps in enumerate((10, 20, 30, 20, 25))]
    found = time_to_quality(rows, [timed_row(0.5)])["resnet_tiny", "ddp"]
    assert (found.runs, found.reached, found.metric, found.target) == (5, 5, "top1", 0.9)
    assert found.steps.value == 20
    assert 10 <= found.steps.low <= 20 <= found.steps.high <= 30
    assert found.time_s is not None
    assert found.time_s.value == 10
    assert (found.time_s.low, found.time_s.high) == (found.steps.low / 2, found.steps.high / 2)
    assert found.kind == "measured"


def test_without_times_there_are_steps_only() -> None:
    found = time_to_quality([quality_row(0, 10)])["resnet_tiny", "ddp"]
    assert found.time_s is None
    assert found.kind == ""


def test_a_run_that_never_gets_there_counts_as_infinite() -> None:
    rows = [quality_row(seed, steps) for seed, steps in enumerate((10, None, 20, None, 15))]
    found = time_to_quality(rows)["resnet_tiny", "ddp"]
    assert found.reached == 3
    assert found.steps.value == 20
    assert math.isinf(found.steps.high)
    never = time_to_quality([quality_row(seed, None) for seed in range(3)])["resnet_tiny", "ddp"]
    assert math.isinf(never.steps.low)


def test_schemes_are_told_apart_by_all_that_decides_their_steps() -> None:
    one = make_case(scheme="per_tensor", compressor="topk", density=0.05, memory="residual")
    assert way(one) == "per_tensor/topk@0.05"
    assert way(replace(one, memory="none")) == "per_tensor/topk@0.05/none"
    assert way(replace(one, scheme_options={"sizes": "variable"})) == "per_tensor(sizes=variable)/topk@0.05"
    assert way(replace(one, world_size=8, seed=3)) == way(one)


def test_times_of_two_clusters_are_not_mixed() -> None:
    rows = [timed_row(0.5), timed_row(0.7, world_size=4)]
    with pytest.raises(ValueError, match="choose one"):
        time_to_quality([quality_row(0, 10)], rows)


def test_runs_with_other_samples_a_step_are_not_mixed() -> None:
    with pytest.raises(ValueError, match="samples a step"):
        time_to_quality([quality_row(0, 10), quality_row(0, 10, world_size=8)])


def test_the_interval_covers_the_median_as_often_as_it_says() -> None:
    import numpy as np

    rng = np.random.default_rng(1)
    covered = 0
    for trial in range(200):
        found = bootstrap(rng.normal(100, 10, 9).tolist(), [1.0], seed=trial)
        covered += found.low <= 100 <= found.high
    assert covered / 200 > 0.85
