"""SSFusion Table I: from rows to the table beside the published values."""

import csv
from dataclasses import replace

import pytest
from figures.synthetic_missing import DEGREES, fused_row, missing_rates, missing_row

from experiments.common.figures.discovery import discover
from experiments.common.figures.drawing import draw_all
from ssfx.lab.config.cases import resolve_job

TABLE01 = "ssfusion.table1"
PUBLISHED = {"resnet152_digits": [9.8, 22.8, 47.0, 68.2, 75.6], "bert_large_narrow": [8.6, 24.0, 42.5, 66.5, 81.2]}


def table(rows, out):
    draw_all([TABLE01], rows, out)
    return list(csv.DictReader((out / f"{TABLE01}.csv").read_text().splitlines()))


def said(rows):
    figure = discover()[TABLE01]
    return figure.finding(figure.select(rows))


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
