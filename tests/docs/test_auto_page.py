"""The generated parts of the page about auto say what rows and the benchmark's record hold."""

import json
from pathlib import Path

from evaluation.test_time_to_quality import quality_row
from results.test_store import make_row

from experiments.common.pages.auto_page import EXPERIMENT, RECORD, auto_target_block, points_block
from ssfx.core.rows import Row


def row(seed: int, steps: float | None, step_s: float, to_target_s: float | None, **changes: object) -> Row:
    case = quality_row(seed, steps, experiment=EXPERIMENT, **changes).case
    metrics = {"steps_to_target": steps, "iteration_s": step_s, "time_to_target_s": to_target_s}
    return Row(case.run_id, case, metrics, make_row().origin)


def test_schemes_are_ordered_by_steps_times_a_step() -> None:
    rows = [row(seed, steps, 0.1, 9.0, scheme="auto") for seed, steps in enumerate((20, 10, 30))]
    rows += [row(seed, 10, 0.3, 3.1) for seed in range(3)]
    rows += [
        row(seed, steps, 0.01, None if steps is None else 1.0, scheme="wfbp")
        for seed, steps in enumerate((None, 5, None))
    ]
    block = auto_target_block(rows)
    assert "medians of 3 seeds" in block
    assert "auto takes 1.00 to 1.00 times as long as the fastest" in block
    *_, first, second, third = block.splitlines()
    assert first == "| resnet_tiny | auto | 3 of 3 | 20 | 100.0 | 2.00 | 9.00 |"
    assert second == "| resnet_tiny | ddp | 3 of 3 | 10 | 300.0 | 3.00 | 3.10 |"
    assert third == "| resnet_tiny | wfbp | 1 of 3 |  | 10.0 |  |  |"


def test_points_are_counted_by_budget(tmp_path: Path) -> None:
    columns = ["gbps", "budget", "over the best other", "over dense 16 bits", "over ssfusion_oi"]
    points = [[10, "a", 1.0, 0.5, 0.5], [400, "a", 1.03, 0.9, 9.0], [50, "b", 0.9, 1.004, 0.8]]
    record = {"date": "2026-11-24T00:00:00", "code": {"commit": "0123456789"}, "columns": columns, "points": points}
    (tmp_path / RECORD).write_text(json.dumps(record))
    block = points_block(tmp_path)
    assert "| a | 2 | 50.0% (worst 1.030) | 100.0% (worst 0.900) | 2.00 x |" in block
    assert "| b | 1 | 100.0% (worst 0.900) | 100.0% (worst 1.004) | 1.25 x |" in block
    assert "2026-11-24, commit 0123456" in block


def test_without_rows_the_commands_are_named(tmp_path: Path) -> None:
    assert f"experiment={EXPERIMENT}" in auto_target_block([])
    assert RECORD in points_block(tmp_path)
