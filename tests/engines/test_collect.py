"""From result files to a row."""

import json
from dataclasses import replace

import pytest
from engines.helpers import make_case

from ssfx.core.errors import RunError
from ssfx.lab.engines.collect import collect
from ssfx.lab.engines.job import Job
from ssfx.lab.results.store import RunLock
from ssfx.lab.workloads.record import StepRecord

RECORD = StepRecord(
    step=0,
    iteration_s=1.0,
    forward_s=0.2,
    backward_s=0.3,
    sparsify_s=0.1,
    exposed_comm_s=0.1,
    step_s=0.1,
    other_s=0.2,
    comm_s=0.2,
    loss=2.0,
    contributed_bytes=100,
    sent_bytes=150,
    achieved_density=0.01,
    tensor_missing_rate=0.5,
    skipped=False,
)


def result(rank, **changes):
    fields = {
        "rank": rank,
        "metrics": {"skipped_steps": 0},
        "dataset_fingerprint": "d",
        "plan_digest": "p",
        "first_step": 0,
        "notes": [],
        "peak_memory_bytes": 100 + rank,
        "gpus": [],
        "started": "2026-01-01T00:00:00+00:00",
        "stopped": "2026-01-01T00:00:10+00:00",
        "wall_s": 10.0,
        "machine_busy_s": 19.0,
        "own_busy_s": 8.0,
        "cores": [0],
    }
    return {**fields, **changes}


@pytest.fixture
def job(tmp_path):
    claim = RunLock.take(tmp_path / make_case().run_id)
    yield Job(make_case(), claim, 1)
    claim.release()


def leave(job, records, results=None, other=None):
    """Leave what two ranks leave; the other one's records are alike unless given."""
    job.attempt_dir.mkdir()
    for rank, found in enumerate((records, other or records)):
        (job.attempt_dir / f"rank{rank}.jsonl").write_text("".join(record.to_json() + "\n" for record in found))
    for entry in results or (result(0), result(1)):
        (job.attempt_dir / f"result-rank{entry['rank']}.json").write_text(json.dumps(entry))


def row_of(job):
    return collect(job, "measured", {"version": "1"}, {"OMP_NUM_THREADS": "1"})


@pytest.mark.parametrize(("rates", "mean"), [([0.1, 0.2, 0.3, 0.6], 0.3), ([0, 0, 0, 0], 0), ([0, 0, None, 0], None)])
def test_a_row_holds_the_mean_over_measured_steps_without_the_warm_up(job, rates, mean):
    assert (job.case.steps, job.case.warmup_steps) == (6, 2)
    leave(job, [replace(RECORD, step=step, tensor_missing_rate=rate) for step, rate in enumerate([1.0, 1.0, *rates])])
    assert row_of(job).metrics["tensor_missing_rate"] == (None if mean is None else pytest.approx(mean))


def test_medians_leave_out_the_warm_up_and_memory_is_the_worst_ranks(job):
    times = [100, 100, 1, 2, 3, 4]
    leave(job, [replace(RECORD, step=i, iteration_s=float(t)) for i, t in enumerate(times)])
    row = row_of(job)
    assert row.metrics["iteration_s"] == 2.5
    assert row.metrics["iteration_p10_s"] == pytest.approx(1.3)
    assert row.metrics["iteration_p90_s"] == pytest.approx(3.7)
    assert row.metrics["other_s"] == pytest.approx(2.5 - 0.8)
    assert row.metrics["throughput_samples_per_s"] == pytest.approx(2 * 4 / 2.5)
    assert row.metrics["peak_memory_bytes"] == 101
    assert row.metrics["tensor_missing_rate"] == 0.5
    assert row.samples["iteration_s"] == [1.0, 2.0, 3.0, 4.0]
    assert row.manifest["background_cores"] == pytest.approx(0.3)  # 19 - 16 busy seconds in 10
    assert row.origin.kind == "measured"


def test_the_slowest_forward_is_of_whichever_rank_it_was_in_each_step(job):
    mine = [replace(RECORD, step=i, forward_s=float(i)) for i in range(6)]
    leave(job, mine, other=[replace(RECORD, step=i, forward_s=float(7 - i)) for i in range(6)])
    assert row_of(job).metrics["slowest_forward_s"] == 4.5  # of 5, 4, 4, 5 after the warm-up
    assert row_of(job).metrics["forward_s"] == 3.5


def test_of_each_pass_without_exchange_the_slowest_rank_counts(job):
    def records(passes):
        return [
            replace(RECORD, step=i, control_forward_s=one and one[0], control_backward_s=one and one[1])
            for i, one in enumerate(passes)
        ]

    mine, other = [None, None, (1.0, 2.0), (3.0, 4.0), (5.0, 6.0), (1.0, 9.0)], [None, None, *[(2.0, 3.0)] * 4]
    leave(job, records(mine), other=records(other))
    row = row_of(job)
    assert row.samples["control_forward_s"] == [2.0, 3.0, 5.0, 1.0]
    assert row.samples["control_backward_s"] == [3.0, 4.0, 6.0, 9.0]
    assert row.metrics["control_forward_s"] == 2.5
    assert row.metrics["control_backward_s"] == 5.0


def test_beside_such_passes_is_what_the_rank_selected_that_selected_most(job):
    def records(densities):
        return [
            replace(RECORD, step=i, achieved_density=density, control_forward_s=1.0, control_backward_s=1.0)
            for i, density in enumerate(densities)
        ]

    leave(job, records([1, 1, 0.1, 0.2, 0.3, 0.4]), other=records([1, 1, 0.4, 0.3, 0.2, 0.1]))
    row = row_of(job)
    assert row.samples["greatest_density"] == [0.4, 0.3, 0.3, 0.4]
    assert row.metrics["achieved_density"] == pytest.approx(0.25)


def test_a_run_without_such_passes_has_no_such_values(job):
    leave(job, [replace(RECORD, step=i) for i in range(6)])
    row = row_of(job)
    assert not [name for name in (*row.metrics, *row.samples) if name.startswith(("control", "greatest"))]


def test_a_mean_with_a_missing_value_is_missing(job):
    leave(job, [replace(RECORD, step=i, loss=None if i == 5 else 1.0, tensor_missing_rate=None) for i in range(6)])
    row = row_of(job)
    assert row.metrics["loss"] is None
    assert row.metrics["tensor_missing_rate"] is None


def test_a_resumed_run_counts_each_step_once_and_forgives_a_torn_last_line(job):
    leave(job, [replace(RECORD, step=i, iteration_s=1.0) for i in range(4)])
    for rank in (0, 1):
        with (job.attempt_dir / f"rank{rank}.jsonl").open("a") as log:
            log.write('{"step": 4, "iter')
    second = Job(job.case, job.claim, 2)
    leave(second, [replace(RECORD, step=i, iteration_s=2.0) for i in (3, 4, 5)], [result(0, first_step=3), result(1)])
    row = row_of(second)
    assert row.samples["iteration_s"] == [1.0, 2.0, 2.0, 2.0]
    assert row.manifest["resumed_from_step"] == 3


def test_a_corrupt_step_record_is_named_with_its_line(job):
    leave(job, [replace(RECORD, step=i) for i in range(6)])
    path = job.attempt_dir / "rank0.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "{", *lines[2:]]) + "\n")
    with pytest.raises(RunError, match=r"rank0\.jsonl:2: not a step record"):
        row_of(job)


def test_a_missing_step_is_named(job):
    leave(job, [replace(RECORD, step=i) for i in (0, 1, 2, 4, 5)])
    with pytest.raises(RunError, match="step 3 is missing"):
        row_of(job)


def test_what_ranks_noted_is_in_the_row_once(job):
    noted = [result(0, notes=["slow", "passed over"]), result(1, notes=["slow", "of rank 1"])]
    leave(job, [replace(RECORD, step=i) for i in range(6)], noted)
    assert row_of(job).manifest["notes"] == ["slow", "passed over", "of rank 1"]


@pytest.mark.parametrize("key", ["plan_digest", "dataset_fingerprint"])
def test_ranks_must_agree(job, key):
    leave(job, [replace(RECORD, step=i) for i in range(6)], [result(0), result(1, **{key: "other"})])
    with pytest.raises(RunError, match=f"rank 1 has {key} other"):
        row_of(job)


def test_a_corrupt_result_is_named(job):
    leave(job, [replace(RECORD, step=i) for i in range(6)])
    (job.attempt_dir / "result-rank1.json").write_text('{"rank": 1,')
    with pytest.raises(RunError, match=r"result-rank1\.json:1: not JSON"):
        row_of(job)


def test_observing_and_planning_are_a_share_of_all_steps(job):
    seen = [
        (4.0, True, 0.0),
        (6.0, True, 2.0),
        (3.0, False, 1.0),
        (2.0, False, 0.0),
        (2.0, False, 0.0),
        (3.0, False, 0),
    ]
    leave(
        job,
        [
            replace(RECORD, step=i, iteration_s=total, observed=observed, plan_s=plan)
            for i, (total, observed, plan) in enumerate(seen)
        ],
    )
    metrics = row_of(job).metrics
    names = ("profiled_steps", "profile_s", "plan_s", "profile_share")
    assert [metrics[name] for name in names] == [2, 8.0, 3.0, pytest.approx(11 / 20)]


def test_a_scheme_that_plans_at_once_has_no_share(job):
    leave(job, [replace(RECORD, step=i) for i in range(6)])
    assert not {"profiled_steps", "profile_s", "plan_s", "profile_share"} & set(row_of(job).metrics)


def test_steps_of_a_round_count_together(tmp_path):
    """Of four steps the last waits for weights; the median step alone would hide that."""
    case = make_case(scheme="diloco", scheme_options={"every": 4}, compressor="bf16", steps=14, warmup_steps=1)
    claim = RunLock.take(tmp_path / case.run_id)
    times = [9.0 if step % 4 == 3 else 1.0 for step in range(14)]
    one = Job(case, claim, 1)
    leave(one, [replace(RECORD, step=step, iteration_s=time) for step, time in enumerate(times)])
    row = row_of(one)
    assert row.samples["iteration_s"] == [3.0, 3.0]
    assert row.metrics["iteration_s"] == 3.0
    claim.release()
