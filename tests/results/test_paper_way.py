"""Methods as the paper ran them beside the same at their best: which rows stand for a method, and what claims get."""

import pytest

from experiments.common.claims.simulated import claim_columns, judged
from experiments.common.figures.gains import gain, listed
from ssfx.core.origin import Origin
from ssfx.core.rows import Row
from ssfx.lab.config.cases import resolve_job
from ssfx.lab.results.comparisons import AS_THE_PAPER_RAN, as_the_paper_ran, cells

SPEEDS = {
    "ssfusion_oi": 200.0,
    "hipress": 190.0,
    "oktopk": 160.0,
    "ddp": 195.0,
    "ssfusion_oi rule=paper": 180.0,
    "hipress rule=threshold": 100.0,
}


@pytest.fixture(scope="module")
def cases():
    words = "experiment=throughput cluster=64gpu workload=bert_large_squad"
    return resolve_job(words.split()).cases


def rows_of(cases, names) -> list[Row]:
    found = []
    for case in cases:
        label = " ".join([case.scheme, *(f"{key}={value}" for key, value in case.scheme_options.items())])
        if label in names:
            metrics = {"throughput_samples_per_s": SPEEDS[label], "iteration_s": 1 / SPEEDS[label]}
            found.append(Row(case.run_id, case, metrics, Origin("simulated", "made up"), {}))
    return found


def test_the_experiments_simulate_both_ways(cases):
    labels = {" ".join([c.scheme, *(f"{k}={v}" for k, v in c.scheme_options.items())]) for c in cases}
    both = {name: label for name, label in AS_THE_PAPER_RAN.items() if name != "ssfusion_i"}
    assert set(both) | set(both.values()) <= labels
    parts = resolve_job(["experiment=breakdown", "workload=bert_large_squad"]).cases
    ran = {c.scheme for c in parts if "rule" in c.scheme_options}
    assert ran == {"hipress", "espresso", "omgs", "ssfusion_oi"}


def test_a_cell_as_the_paper_ran_it_has_one_row_for_each_method(cases):
    (cell,) = cells(rows_of(cases, SPEEDS))
    ran = as_the_paper_ran(cell)
    assert set(ran.rows) == {"ssfusion_oi", "hipress", "oktopk", "ddp"}
    assert ran.value("hipress", "throughput_samples_per_s") == 100.0
    assert ran.value("oktopk", "throughput_samples_per_s") == 160.0  # it has one rule
    assert cell.value("hipress", "throughput_samples_per_s") == 190.0
    assert listed(gain, cell, "hipress") == pytest.approx(200 / 190 - 1)
    assert listed(gain, cell, "hipress rule=threshold") == pytest.approx(0.8)
    (best,) = cells(rows_of(cases, {"ssfusion_oi", "hipress"}))
    assert as_the_paper_ran(best) is best


def test_claims_are_held_against_what_the_paper_ran(cases):
    claim = "ssfusion.exp1.oi_vs_hipress"
    both, best = (rows_of(cases, names) for names in (SPEEDS, {"ssfusion_oi", "hipress"}))
    (found,) = (one for one in judged("ssfusion.fig11", both) if one.claim == claim)
    assert found.values == pytest.approx((0.8,))
    assert {line["methods"] for line in claim_columns("ssfusion.fig11", both)} == {"as the paper ran them"}
    (found,) = (one for one in judged("ssfusion.fig11", best) if one.claim == claim)
    assert found.values == pytest.approx((200 / 190 - 1,))
    assert not any("methods" in line for line in claim_columns("ssfusion.fig11", best))
