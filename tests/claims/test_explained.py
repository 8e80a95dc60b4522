"""Why a simulated value differs from a paper's, in a sentence, and orders that the simulator cannot tell."""

import re
from math import inf

import pytest

from experiments.common.claims.ledger import claims_by_id
from experiments.common.claims.simulated import explained, meets
from experiments.common.claims.verdicts import outcome_of_order
from experiments.common.figures.discovery import discover
from experiments.common.figures.every_claim import headlines
from experiments.common.pages.readme import reference_rows
from ssfx.lab.results.comparisons import as_the_paper_ran, cells


@pytest.fixture(scope="module")
def rows():
    return reference_rows()


@pytest.fixture(scope="module")
def nominal(rows):
    chosen = discover()["ssfusion.fig11"].select(rows)
    return [as_the_paper_ran(cell) for cell in cells(chosen) if cell.calibration == "nominal"]


def test_a_gain_that_nothing_could_reach_is_explained_by_what_a_step_without_exchange_takes(nominal):
    claim = claims_by_id()["ssfusion.exp1.oi_vs_oktopk_spardl"]
    there = [cell for cell in nominal if meets(claim, cell)]
    said = explained(claim, there)
    most = max(
        cell.value(other, "iteration_s") / cell.ideal("iteration_s") - 1
        for cell in there
        for other in ("oktopk", "spardl")
    )
    assert most < claim.bounds[0]
    assert f"would gain at most {most:.0%}" in said
    assert said.endswith(f"so that nothing can gain {claim.bounds[0]:.0%}")
    assert "at 200 Gbit/s dense DDP waits for its exchange in only" in said


@pytest.mark.parametrize(
    ("leads", "error", "outcome", "near"),
    [
        ([0.5, 0.3], 0.1, "agrees", ""),
        ([0.5, 0.01], 0.1, "partly", "1 of 2 pairs differ by 1.0 % only"),
        ([0.5, -0.01], 0.1, "partly", "1 of 2"),
        ([0.5, -0.3], 0.1, "disagrees", ""),
        ([0.01, -0.3], 0.1, "disagrees", ""),
        ([inf], 0.1, "agrees", ""),
        ([0.01], None, "agrees", ""),
        ([0.01, 0.0], None, "disagrees", ""),
        ([0.2, 0.15], 0.1, "not comparable", "2 of 2 pairs differ by 15.0 to 20.0 %"),
    ],
)
def test_an_order_is_told_where_its_pairs_are_further_apart_than_both_errors(leads, error, outcome, near):
    found, why = outcome_of_order(leads, error)
    assert (found, why[: len(near)]) == (outcome, near)
    assert bool(why) == (found in ("partly", "not comparable"))


def test_the_verdicts_of_the_report_carry_both(rows):
    found = headlines(discover().values(), rows)
    order = found["ssfusion.exp1.variant_order"]
    assert order.outcome == "not comparable"
    assert "too close to call: methods without any effect would pass, too" in order.reason
    why = found["ssfusion.headline.throughput"].reason
    assert "dense DDP waits for its exchange" in why
    assert re.search(r"would gain (at most )?\d+%", why)
