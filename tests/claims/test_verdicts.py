"""A number of ours against a stated one, and which of several verdicts counts."""

import pytest

from experiments.common.claims.verdicts import Verdict, compared, headline, span


@pytest.mark.parametrize(
    ("stated", "ours", "relative", "outcome"),
    [
        ((2.0, 2.0), (2.0, 2.0), 0.0, "agrees"),
        ((2.0, 2.0), (2.1, 2.1), 0.05, "agrees"),
        ((2.0, 2.0), (2.2, 2.2), 0.05, "disagrees"),
        ((1.0, 2.0), (1.5, 3.0), 0.0, "partly"),
        ((-0.2, -0.1), (-0.21, -0.21), 0.1, "agrees"),
    ],
)
def test_ranges_are_compared(stated, ours, relative, outcome):
    assert compared("a.b", stated, ours, relative=relative).outcome == outcome


def test_a_difference_is_said_in_the_claims_unit():
    found = compared("a.b", (0.28, 1.07), (-0.09, 0.26), unit="fraction")
    assert found.ours == "-9 to 26 %"
    assert found.reason == "ours is -9 to 26 %, the paper has 28 to 107 %"


def test_no_digit_that_a_paper_prints_is_hidden():
    assert compared("acpsgd.fig10.model_size", 1282.6, 1282.6, unit="MB").ours == "1282.6 MB"
    assert [span(one, one) for one in (0.123456, 999.96, 1162.04, 85_600.0)] == ["0.1235", "1000", "1162", "85600"]


def test_what_does_not_agree_needs_a_reason():
    with pytest.raises(ValueError, match="needs a reason"):
        Verdict("a.b", "not attempted", "", "computed")


def test_nominal_counts_among_simulations_whatever_it_gives():
    nominal = Verdict("a.b", "disagrees", "1", "simulated", "nominal", "differs")
    published = Verdict("a.b", "agrees", "2", "simulated", "published")
    assert headline([published, nominal])["a.b"] == nominal


def test_a_source_that_could_compare_stands_first():
    real = Verdict("a.b", "not comparable", "1", "measured", "", "another model")
    simulated = Verdict("a.b", "disagrees", "2", "simulated", "nominal", "differs")
    assert headline([real, simulated])["a.b"] == simulated
