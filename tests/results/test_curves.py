"""Curves: from step records to columns of a row, and to a data frame."""

from dataclasses import replace

import pytest
from engines.test_collect import RECORD
from results.test_store import make_row
from workloads.fakes import make_case

from ssfx.core.rows import POINTS, Row, curves, points
from ssfx.lab.engines.collect import curve_of, target_metrics
from ssfx.lab.results.store import Store


def records(values: dict[int, float | None], steps: int = 6):
    return [
        replace(RECORD, step=i, iteration_s=0.5, loss=float(i), evaluated={"top1": values[i]} if i in values else None)
        for i in range(steps)
    ]


def test_a_point_holds_what_happened_up_to_it():
    curve = curve_of(records({1: 0.25, 5: None}))
    assert curve["step"] == [2, 6]
    assert curve["time_s"] == [1.0, 3.0]
    assert curve["sent_bytes"] == [300, 900]
    assert curve["loss"] == [0.5, 3.5]  # means since the point before
    assert curve["density"] == [0.01, 0.01]
    assert curve["top1"] == [0.25, None]
    assert curve_of(records({})) == {}


def test_many_points_are_thinned_and_the_last_one_stays():
    curve = curve_of(records({i: i / 400 for i in range(400)}, 400))
    assert len(curve["step"]) == POINTS
    assert curve["step"][-1] == 400
    assert curve["step"] == sorted(set(curve["step"]))


def test_a_target_is_reached_where_quality_was_first_measured_at_it():
    case = make_case(evaluate=True, evaluate_every=2, target_metric="top1", target_value=0.5)
    assert target_metrics(case, records({1: 0.4, 3: 0.5, 5: 0.6})) == {"steps_to_target": 4, "time_to_target_s": 2.0}
    missed = {"steps_to_target": None, "time_to_target_s": None}
    assert target_metrics(case, records({1: 0.4, 3: None})) == missed
    assert target_metrics(make_case(), records({1: 0.9})) == {}
    falling = replace(case, target_metric="perplexity", target_value=10.0)
    found = [replace(one, evaluated={"perplexity": 12.0 - one.step}) for one in records({})]
    assert target_metrics(falling, found)["steps_to_target"] == 3


def test_rows_with_curves_are_read_again_and_become_a_frame(tmp_path):
    row = replace(make_row(), curve=curve_of(records({1: 0.25, 5: 0.5})))
    assert Row.from_json(row.to_json()) == row
    assert "curve" not in make_row().to_json()
    store = Store(tmp_path)
    store.save(row)
    frame = store.curves()
    assert list(frame["step"]) == [2, 6]
    assert list(frame["top1"]) == [0.25, 0.5]
    assert set(frame["run_id"]) == {row.run_id}
    assert [point["loss"] for point in points(row)] == [0.5, 3.5]
    assert curves([make_row()]).empty
    with pytest.raises(ValueError, match="equally long"):
        list(points(replace(row, curve={"step": [1], "top1": []})))


def test_times_of_virtual_ranks_are_called_simulated_in_rows_that_call_them_times_too():
    case = replace(make_row().case, virtual="cpu", calibration="nominal:12345678")
    row = replace(make_row(), run_id=case.run_id, case=case, curve={"step": [2], "time_s": [1.0]})
    read = Row.from_json(row.to_json())
    assert read.curve == {"step": [2], "simulated_time_s": [1.0]}
    assert Row.from_json(read.to_json()) == read
    assert (read.kind, make_row().kind) == ("quality measured, times simulated", "measured")
