"""Every claim of the ledger has a verdict, from whatever speaks to it, or the reason why nothing does."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from figures.synthetic import row
from figures.synthetic_clusters import clusters

from experiments.common.claims.ledger import claims_by_id
from experiments.common.claims.verdicts import Verdict, compared
from experiments.common.figures.discovery import discover
from experiments.common.figures.every_claim import headlines, verdicts, why_not_attempted, within_error
from ssfx.advice.trust import Trust
from ssfx.core.errors import RunError

CLAIMS = claims_by_id()


@dataclass(frozen=True)
class Script:
    """A figure that judges what it is told to."""

    given: tuple[Verdict, ...] = ()
    name: str = "ssfusion.eq1"
    claims: tuple[str, ...] = ("ssfusion.eq1",)
    needs: Mapping[str, Any] = field(default_factory=dict)
    command: str = "ssfx figures eq1"
    error: str = ""

    def select(self, rows):
        return list(rows) if self.needs else []

    def judge(self, rows):
        if self.error:
            raise RunError(self.error)
        return self.given


def test_without_anything_every_claim_is_not_attempted_and_says_why():
    found = verdicts([], [])
    assert [one.claim for one in found] == list(CLAIMS)
    assert {(one.source, one.ours) for one in found} == {("none", "")}
    assert all(one.reason.endswith(".") for one in found if one.outcome == "not attempted")


def test_nothing_is_held_against_a_number_that_its_paper_contradicts():
    found = verdicts([], [])
    assert {one.outcome for one in found if CLAIMS[one.claim].contradiction} == {"not comparable"}
    assert {one.outcome for one in found if not CLAIMS[one.claim].contradiction} == {"not attempted"}


@pytest.mark.parametrize("claim", list(CLAIMS)[::7])
def test_the_reason_is_one_short_sentence(claim):
    assert 20 < len(why_not_attempted(CLAIMS[claim])) < 170


def test_a_script_that_computes_without_rows_is_heard():
    said = Verdict("ssfusion.eq1.form", "agrees", "1", "computed")
    assert headlines([Script((said,))], [])["ssfusion.eq1.form"] == said
    assert said not in verdicts([Script((said,), needs={"experiment": "none"})], [])


def test_a_script_that_judges_an_unknown_claim_is_an_error():
    with pytest.raises(ValueError, match=r"'nobody.said' *, which is in no ledger"):
        verdicts([Script((Verdict("nobody.said", "agrees", "1", "computed"),))], [])


def test_a_script_whose_rows_cannot_be_used_takes_only_its_own_claims_along():
    found = headlines([Script(error="row r1 has no value for loss")], [])
    assert found["ssfusion.eq1.form"].reason == "row r1 has no value for loss"
    assert found["ssfusion.design.eq2"].reason == why_not_attempted(CLAIMS["ssfusion.design.eq2"])


def test_simulated_rows_speak_once_for_each_calibration_and_real_rows_too():
    found = verdicts(discover().values(), [*clusters(), row(scheme="ssfusion_naive"), row(scheme="ssfusion_o")])
    said = {(one.source, one.calibration) for one in found if one.claim == "ssfusion.exp1.o_vs_naive"}
    assert {source for source, _ in said} == {"simulated", "measured"}
    assert {one.claim for one in found} == set(CLAIMS)
    assert len({(one.claim, one.source, one.calibration) for one in found}) == len(found)


@pytest.mark.parametrize(
    ("claim", "contradicted"),
    [
        ("s2reducer.appB1.ratio", False),  # our model of a ring contradicts it, no number of the paper
        ("acpsgd.fig3.sign_comm", False),  # consistent, as all of it is exposed
        ("acpsgd.fig3.power", True),  # Table III has another ratio
    ],
)
def test_only_a_number_of_the_paper_itself_keeps_a_claim_from_being_judged(claim, contradicted):
    ours = Verdict(claim, "disagrees", "1", "simulated", "nominal", "differs")
    counted = headlines([Script((ours,))], [])[claim]
    assert (counted.outcome == "not comparable") == contradicted
    assert ("contradicts other numbers of the paper" in counted.reason) == contradicted


@pytest.mark.parametrize(
    ("ours", "outcome"),
    [((0.9, 2.4), "not comparable"), ((1.1, 2.4), "partly"), ((1.78, 1.82), "agrees"), ((0.9, 0.95), "disagrees")],
)
def test_a_speedup_is_not_tested_by_a_range_that_has_no_effect_in_it(ours, outcome):
    simulated = compared("s2reducer.fig3.f.gnmt8.omni", 1.8, ours, relative=0.05, source="simulated", calibration="x")
    trust = Trust("published", 0.11, 0.64, 90)
    assert within_error(simulated, CLAIMS[simulated.claim], trust).outcome == outcome


@pytest.mark.parametrize(
    ("claim", "ours", "outcome"),
    [
        ("acpsgd.iv.ar.sep", 1.08, "within error"),  # of a time in ms
        ("acpsgd.iv.ar.sep", 0.92, "within error"),
        ("acpsgd.iv.ar.sep", 1.2, "disagrees"),
        ("acpsgd.fig10.default_gain", 1.08, "disagrees"),  # a gain of 50 %
        ("mergecomp.table3.fp16.g8", 1.08, "not comparable"),  # of 6 %, of which no effect at all is as near
        ("acpsgd.fig11a.b16.ssgd", 1.08, "within error"),  # 2.4x
        ("ssfusion.exp3.spars.bertl", 0.93, "within error"),  # of 48 % less, which leaves 52
        ("ssfusion.exp3.spars.bertl", 0.7, "disagrees"),
        ("mergecomp.table2.dgc.y2.g8", 1 / 1.1, "not comparable"),  # 1.06x, of which no effect at all is as near
    ],
)
def test_times_as_far_off_as_simulated_steps_are_tell_nothing(claim, ours, outcome):
    paper = CLAIMS[claim].bounds
    simulated = compared(claim, paper, ours * paper[0], source="simulated", calibration="nominal")
    trust = Trust("published", 0.11, 0.64, 90)
    found = within_error(simulated, CLAIMS[claim], trust)
    assert (simulated.outcome, found.outcome) == ("disagrees", outcome)
    assert within_error(simulated, CLAIMS[claim], None) == simulated
    measured = compared(claim, paper, ours * paper[0], source="measured")
    assert within_error(measured, CLAIMS[claim], trust) == measured
