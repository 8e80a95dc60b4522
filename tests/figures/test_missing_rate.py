"""SSFusion Table I: from steps to the row, and from rows to the table beside the published values."""

import csv
import json
from dataclasses import replace

import pytest
from engines.helpers import make_case
from figures.synthetic_missing import DEGREES, fused_row, missing_rates, missing_row

from experiments.common.figures.discovery import discover
from experiments.common.figures.drawing import draw_all
from ssfx.lab.config.cases import resolve_job
from ssfx.lab.engines.collect import collect
from ssfx.lab.engines.job import Job
from ssfx.lab.results.store import RunLock
from ssfx.lab.workloads.record import StepRecord

TABLE01 = "ssfusion.table1"
PUBLISHED = {"resnet152_digits": [9.8, 22.8, 47.0, 68.2, 75.6], "bert_large_narrow": [8.6, 24.0, 42.5, 66.5, 81.2]}


def table(rows, out):
    draw_all([TABLE01], rows, out)
    return list(csv.DictReader((out / f"{TABLE01}.csv").read_text().splitlines()))


def said(rows):
    figure = discover()[TABLE01]
    return figure.finding(figure.select(rows))


@pytest.mark.parametrize(("rates", "mean"), [([0.1, 0.2, 0.3, 0.6], 0.3), ([0, 0, 0, 0], 0), ([0, 0, None, 0], None)])
def test_a_row_holds_the_mean_over_measured_steps_without_the_warm_up(tmp_path, rates, mean):
    case = make_case()
    assert (case.steps, case.warmup_steps) == (6, 2)
    job = Job(case, RunLock.take(tmp_path / case.run_id), 1)
    job.attempt_dir.mkdir()
    times = dict.fromkeys(("iteration_s", "forward_s", "backward_s", "sparsify_s", "exposed_comm_s", "step_s"), 1.0)
    steps = [
        StepRecord(
            step=step,
            **times,
            other_s=0.0,
            comm_s=0.0,
            loss=1.0,
            contributed_bytes=1,
            sent_bytes=1,
            achieved_density=0.01,
            tensor_missing_rate=rate,
            skipped=False,
        )
        for step, rate in enumerate([1.0, 1.0, *rates])
    ]
    for rank in range(2):
        (job.attempt_dir / f"rank{rank}.jsonl").write_text("".join(step.to_json() + "\n" for step in steps))
        result = {
            "rank": rank,
            "metrics": {},
            "dataset_fingerprint": "d",
            "plan_digest": "p",
            "first_step": 0,
            "notes": [],
            "peak_memory_bytes": 1,
            "gpus": [],
            "started": "2026-01-01T00:00:00+00:00",
            "stopped": "2026-01-01T00:00:10+00:00",
            "wall_s": 10.0,
            "machine_busy_s": 19.0,
            "own_busy_s": 8.0,
            "cores": [0],
        }
        (job.attempt_dir / f"result-rank{rank}.json").write_text(json.dumps(result))
    row = collect(job, "measured", {"version": "1"}, {})
    job.claim.release()
    assert row.metrics["tensor_missing_rate"] == (None if mean is None else pytest.approx(mean))


def test_the_experiment_sweeps_the_degree_and_never_measures_a_profiling_step():
    cases = resolve_job(["experiment=missing_rate", "preset=smoke"]).cases
    assert {case.model for case in cases} == set(PUBLISHED)
    assert {(case.compressor, case.density) for case in cases} == {("dgc", 0.01)}
    for model in PUBLISHED:
        own = [case for case in cases if case.model == model]
        for memory, degrees in (("residual", DEGREES), ("none", DEGREES[1:])):
            fused = [case for case in own if case.scheme == "fused_all" and case.memory == memory]
            assert sorted(case.scheme_options.get("fusion_degree", 100) for case in fused) == list(degrees)
        others = [case for case in own if case.scheme != "fused_all"]
        assert {case.scheme for case in others} == {"per_tensor", "ssfusion_naive", "ssfusion_oi"}
        assert all(case.scheme_options.get("profile_iters", 0) < case.warmup_steps < case.steps for case in others)


def test_every_degree_stands_beside_the_papers_rate(tmp_path):
    lines = table(missing_rates(), tmp_path)
    assert [line["degree"] for line in lines] == ["per-tensor", *(f"{degree} %" for degree in DEGREES[1:])]
    for model, published in PUBLISHED.items():
        paper = {"resnet152_digits": "ResNet-152", "bert_large_narrow": "BERT-large"}[model]
        assert [float(line[f"paper | {paper}"]) for line in lines] == [0, *published]
        (ours,) = (key for key in lines[0] if key.startswith(f"{model} | memory"))
        assert [float(line[ours]) for line in lines[1:]] == pytest.approx([0.7 * degree for degree in DEGREES[1:]])


def judged(rows):
    figure = discover()[TABLE01]
    return {one.claim.removeprefix("ssfusion.table1."): one for one in figure.judge(figure.select(rows))}


def test_zeros_are_judged_and_levels_after_random_weights_and_their_range_are_not():
    found = judged(missing_rates())
    assert found["resnet152.per"].outcome == "agrees"
    assert found["resnet152.fd20"].outcome == "not comparable"
    assert found["resnet152.range"].outcome == "not comparable"
    assert found["bertlarge.per"].outcome == "agrees"
    assert found["bertlarge.fd20"].outcome == "not comparable"
    assert {one.source for one in found.values()} == {"measured"}
    assert all("digits instead of CIFAR-100" in one.reason for name, one in found.items() if "resnet" in name)


def test_memories_make_a_range_of_rates_and_a_tensor_lost_per_tensor_disagrees():
    rows = [fused_row(20, 0.098, memory="none"), fused_row(20, 0.2, memory="residual")]
    assert judged(rows)["resnet152.fd20"].ours == "9.8 to 20 %"
    assert judged([missing_row("per_tensor", 0.01)])["resnet152.per"].outcome == "disagrees"


def test_the_finding_names_both_ends():
    assert "resnet152_digits: 14 to 14 % at 20 %, 70 to 70 % at 100 %" in said(missing_rates())


def test_without_two_workers_there_is_no_table(tmp_path):
    alone = missing_row("per_tensor", 0.0)
    alone = replace(alone, case=replace(alone.case, world_size=1), run_id=replace(alone.case, world_size=1).run_id)
    (one,) = draw_all([TABLE01], [alone], tmp_path)
    assert (one.state, one.said) == ("missing", "ssfx run experiment=missing_rate preset=short")
    assert said([alone]).endswith("no two workers")


def test_a_row_without_a_rate_fails_the_table(tmp_path):
    bad = missing_row("per_tensor", None)
    (one,) = draw_all([TABLE01], [bad], tmp_path)
    assert one.state == "failed"
    assert bad.run_id in one.said
    assert "tensor_missing_rate" in one.said
