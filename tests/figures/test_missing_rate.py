"""SSFusion Table I: from steps to the row, and from rows to the table beside the published values."""

import csv
import json
from dataclasses import replace

import pytest
from engines.helpers import make_case
from figures.synthetic_missing import DEGREES, fused_row, missing_rates, missing_row

from ssfx.claims.ledger import ledgers
from ssfx.config import resolve_job
from ssfx.core.errors import RunError
from ssfx.engines.collect import collect
from ssfx.engines.job import Job
from ssfx.figures.discovery import discover, draw_all
from ssfx.results.run_lock import RunLock
from ssfx.workloads.record import StepRecord

TABLE01 = "ssfusion.table01"
PUBLISHED = {
    "resnet152_digits": [9.8, 22.8, 47.0, 68.2, 75.6],
    "bert_large_narrow": [8.6, 24.0, 42.5, 66.5, 81.2],
}


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
            step=step, **times, other_s=0.0, comm_s=0.0, loss=1.0, contributed_bytes=1, sent_bytes=1,
            achieved_density=0.01, tensor_missing_rate=rate, skipped=False,
        )
        for step, rate in enumerate([1.0, 1.0, *rates])
    ]  # fmt: skip
    for rank in range(2):
        (job.attempt_dir / f"rank{rank}.jsonl").write_text("".join(step.to_json() + "\n" for step in steps))
        result = {
            "rank": rank, "metrics": {}, "dataset_fingerprint": "d", "plan_digest": "p", "first_step": 0,
            "notes": [], "peak_memory_bytes": 1, "gpus": [], "started": "2026-01-01T00:00:00+00:00",
            "stopped": "2026-01-01T00:00:10+00:00", "wall_s": 10.0, "machine_busy_s": 19.0, "own_busy_s": 8.0,
            "cores": [0],
        }  # fmt: skip
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


def test_every_degree_stands_beside_the_published_rate_of_its_claim(tmp_path):
    lines = table(missing_rates(), tmp_path)
    values = {claim.id: claim.bounds for ledger in ledgers() for claim in ledger.claims}
    for model, published in PUBLISHED.items():
        own = [line for line in lines if line["workload"].startswith(model)]
        assert [line["scheme"] for line in own] == [
            "per_tensor", *(f"fused_all {degree}%" for degree in DEGREES), "ssfusion_naive", "ssfusion_oi",
        ]  # fmt: skip
        fused = {int(line["fusion_degree"]): line for line in own if line["fusion_degree"]}
        assert [float(fused[degree]["missing_percent"]) for degree in DEGREES] == pytest.approx(
            [0.7 * degree for degree in DEGREES]
        )
        assert [float(fused[degree]["published_percent"]) for degree in DEGREES[1:]] == published
        assert (fused[0]["published_percent"], fused[0]["claim"]) == ("", "")
        for line in own:
            if line["claim"]:
                assert values[line["claim"]] == (float(line["published_percent"]),) * 2
        assert own[0]["claim"].endswith(".per")
        assert {line["steps"] for line in own} == {"10"}


def test_the_finding_names_both_rates_and_the_schemes_that_lose_nothing():
    degrees = "at 20/40/60/80/100%"
    none = "exactly 0: per_tensor, fused_all 0%, ssfusion_naive, ssfusion_oi"
    assert said(missing_rates()) == (
        "percent of tensors of which nothing is sent: "
        f"bert_large_narrow: fused_all 14/28/42/56/70 {degrees}, published 8.6/24/42.5/66.5/81.2 {degrees}, {none}; "
        f"resnet152_digits: fused_all 14/28/42/56/70 {degrees}, published 9.8/22.8/47/68.2/75.6 {degrees}, {none}"
    )


def test_memories_are_quoted_apart_and_the_published_rates_once():
    found = said(
        [fused_row(degree, degree / 200, memory=memory) for memory in ("none", "residual") for degree in (20, 40)]
    )
    assert "fused_all none 10/20 at 20/40%, fused_all residual 10/20 at 20/40%, published 9.8/22.8 at 20/40%, " in found


def test_a_scheme_that_loses_a_single_tensor_once_is_not_called_exact():
    found = said([missing_row("per_tensor", 1e-6), missing_row("ssfusion_oi", 0.0)])
    assert found.endswith("resnet152_digits: per_tensor 0.0001, exactly 0: ssfusion_oi")
    assert said([missing_row("per_tensor", 0.1)]).endswith("exactly 0: none")


def test_half_a_table_and_a_model_that_the_paper_does_not_have_are_drawn(tmp_path):
    rows = [fused_row(20, 0.1), fused_row(40, 0.2, model="resnet_tiny"), missing_row("per_tensor", 0.0)]
    lines = table(rows, tmp_path)
    assert [(line["scheme"], line["published_percent"]) for line in lines] == [
        ("per_tensor", "0"), ("fused_all 20%", "9.8"), ("fused_all 40%", ""),
    ]  # fmt: skip


def test_other_densities_are_not_pooled_and_have_no_published_rate(tmp_path):
    rows = [fused_row(20, 0.1), fused_row(20, 0.5, density=0.1), fused_row(40, 0.7, density=0.1)]
    lines = table(rows, tmp_path)
    assert [(line["scheme"], line["missing_percent"], line["published_percent"]) for line in lines] == [
        ("fused_all 0.01 20%", "10", "9.8"), ("fused_all 0.1 20%", "50", ""), ("fused_all 0.1 40%", "70", ""),
    ]  # fmt: skip
    assert {line["runs"] for line in lines} == {"1"}


def test_degrees_are_listed_memory_by_memory(tmp_path):
    rows = [fused_row(degree, degree / 200, memory=memory) for memory in ("none", "residual") for degree in (100, 20)]
    assert [line["scheme"] for line in table(rows, tmp_path)] == [
        "fused_all none 20%", "fused_all none 100%", "fused_all residual 20%", "fused_all residual 100%",
    ]  # fmt: skip


def test_without_two_workers_there_is_no_table(tmp_path):
    alone = missing_row("per_tensor", 0.0)
    alone = replace(alone, case=replace(alone.case, world_size=1), run_id=replace(alone.case, world_size=1).run_id)
    with pytest.raises(RunError, match="no rows yet: ssfx run experiment=missing_rate"):
        draw_all([TABLE01], [alone], tmp_path)
    assert said([alone]) == "no two workers"


def test_a_row_without_a_rate_stops_the_drawing(tmp_path):
    bad = missing_row("per_tensor", None)
    with pytest.raises(RunError, match=f"{bad.run_id}.*tensor_missing_rate"):
        draw_all([TABLE01], [bad], tmp_path)
