"""Predicted times to a target are held against runs that the prediction has not seen."""

import pytest
from evaluation.test_time_to_quality import quality_row
from results.test_store import make_row

from experiments.common.pages.long_runs import predicted_times, time_to_target_block
from ssfx.core.rows import Row


def real_row(repeat: int, iteration_s: float, to_target_s: float | None, **changes: object) -> Row:
    row = quality_row(4 + repeat, 10, experiment="time_to_target", repeat=repeat, **changes)
    return Row(
        row.case.run_id, row.case, {"iteration_s": iteration_s, "time_to_target_s": to_target_s}, make_row().origin
    )


def rows_of(*actual_s: float | None) -> list[Row]:
    steps = [quality_row(seed, steps, experiment="time_to_quality") for seed, steps in enumerate((10, 20, 30))]
    return [*steps, real_row(0, 0.5, 1.0), *(real_row(n, 9.0, seconds) for n, seconds in enumerate(actual_s, 1))]


def test_the_first_run_tells_the_iteration_time_and_the_others_what_is_true() -> None:
    (pair,) = predicted_times(rows_of(8.0, 12.5, 9.0))
    assert (pair.panel, pair.label) == ("resnet_tiny", "ddp")
    assert pair.predicted == 20 * 0.5
    assert pair.actual == 9.0
    assert pair.spread == pytest.approx(4.5 / 9)


def test_a_scheme_that_does_not_get_there_in_most_runs_is_left_out() -> None:
    assert predicted_times(rows_of(8.0, None, None)) == []
    assert len(predicted_times(rows_of(8.0, None, 9.0))) == 1
    assert predicted_times(rows_of()) == []


def test_the_page_says_how_many_are_near() -> None:
    block = time_to_target_block(rows_of(8.0, 12.5, 9.0))
    assert block.startswith("1 of 1 are predicted within 15 %; the mean error is 11 %")
    assert "| resnet_tiny | ddp | 10.00 | 9.00 | 50 % | +11 % |" in block
    assert "experiment=time_to_target" in time_to_target_block([])
    assert "| 9.00 | not all got there |" in time_to_target_block(rows_of(8.0, None, 9.0))
