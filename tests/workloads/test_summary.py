from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest
from workloads.fakes import make_case

from ssfx.results.rows import METRICS
from ssfx.workloads.record import StepRecord
from ssfx.workloads.summary import read_records, summarise


def _record(step: int, iteration_s: float = 1.0, loss: float | None = 2.0, *, skipped: bool = False) -> StepRecord:
    return StepRecord(
        step=step, iteration_s=iteration_s, forward_s=0.1, backward_s=0.2, sparsify_s=0.1, exposed_comm_s=0.1,
        step_s=0.1, other_s=0.4, comm_s=0.3, loss=loss, contributed_bytes=10, sent_bytes=20, achieved_density=0.1,
        tensor_missing_rate=0.0, skipped=skipped,
    )  # fmt: skip


def test_statistics_leave_out_warm_up() -> None:
    case = make_case(steps=4, warmup_steps=1, batch_size=8, accumulate=2, world_size=2)
    records = [_record(0, 100.0, 9.0, skipped=True), _record(1, 1.0), _record(2, 2.0), _record(3, 3.0, 5.0)]
    metrics, samples = summarise(records, case)
    assert samples["iteration_s"] == [1.0, 2.0, 3.0]
    assert metrics["iteration_s"] == 2.0
    assert metrics["iteration_p10_s"] == pytest.approx(1.2)
    assert metrics["throughput_samples_per_s"] == 8 * 2 * 2 / 2.0
    assert metrics["loss"] == pytest.approx(3.0)
    assert metrics["skipped_steps"] == 1
    assert set(metrics) == set(METRICS) - {"top1", "perplexity", "peak_memory_bytes"}


def test_what_is_unknown_in_one_step_is_unknown() -> None:
    metrics, _ = summarise([_record(0, loss=None), replace(_record(1), tensor_missing_rate=None)], make_case())
    assert metrics["loss"] is None
    assert metrics["tensor_missing_rate"] is None


def test_no_measured_step_gives_no_times() -> None:
    metrics, samples = summarise([], make_case())
    assert metrics["iteration_s"] is None
    assert metrics["throughput_samples_per_s"] is None
    assert samples["iteration_s"] == []


def test_records_of_later_attempts_replace_earlier_ones(tmp_path: Path) -> None:
    for attempt, steps in ((1, (0, 1, 2)), (2, (2, 3)), (10, (3,))):
        folder = tmp_path / f"attempt-{attempt}"
        folder.mkdir()
        lines = [_record(step, float(attempt)).to_json() + "\n" for step in steps]
        (folder / "rank0.jsonl").write_text("".join(lines))
    with (tmp_path / "attempt-1" / "rank0.jsonl").open("a") as file:
        file.write('{"step":3,"itera')  # the rank was killed here
    found = read_records(tmp_path, 0)
    assert [(r.step, r.iteration_s) for r in found] == [(0, 1.0), (1, 1.0), (2, 2.0), (3, 10.0)]
    assert read_records(tmp_path, 1) == []
    assert asdict(found[0])["step"] == 0
