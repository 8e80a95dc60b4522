"""Why a simulated value differs from a paper's, in a sentence, and orders that the simulator cannot tell."""

import re

import pytest

from experiments.common.claims.ledger import claims_by_id
from experiments.common.claims.simulated import explained, meets, too_close
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


def test_an_ordering_within_the_error_of_the_simulator_says_so_and_another_claim_does_not(nominal):
    claim = claims_by_id()["ssfusion.exp1.variant_order"]
    there = [cell for cell in nominal if meets(claim, cell)]
    said = too_close(claim, there)
    assert "less than simulated times are off (11% on average), so that they are too close to call" in said
    assert too_close(claim, []) == ""
    assert too_close(claims_by_id()["ssfusion.exp1.bertl"], there) == ""


def test_the_verdicts_of_the_report_carry_both(rows):
    found = headlines(discover().values(), rows)
    order = found["ssfusion.exp1.variant_order"]
    assert order.outcome == "agrees"
    assert "too close to call" in order.reason
    why = found["ssfusion.headline.throughput"].reason
    assert "dense DDP waits for its exchange" in why
    assert re.search(r"would gain (at most )?\d+%", why)
