"""The break-even bandwidth: one that is real, and what is said when there is none or more than one."""

from math import inf, log10

import pytest
from advice.settings import setting
from hypothesis import given
from hypothesis import strategies as st

from ssfx.advice.break_even import MARKS, STEPS, BreakEvens, highest_crossing, rate
from ssfx.advice.setting import TUNED


def dense_s(where):
    """Seconds of tuned dense, all variants tried."""
    return min(where.trial(name, given).iteration_s for name in TUNED for given in where.variants(name))


@pytest.mark.parametrize("scheme", ["topk", "per_tensor", "oktopk", "cupcake"])
def test_just_below_a_break_even_the_scheme_wins_and_just_above_it_does_not(scheme):
    where = setting()
    found = BreakEvens(where).of(scheme)
    assert 0.01 < found.gbps < 10_000
    below, above = where.at(found.gbps), where.at(found.gbps * 1.01)
    assert below.best(scheme).iteration_s < dense_s(below)
    assert above.best(scheme).iteration_s >= dense_s(above)


def test_the_rate_that_was_asked_for_is_judged_as_in_the_ranking():
    for gbps in (3.0, 30.0, 300.0):
        where = setting(gbps)
        wins = where.best("topk").iteration_s < dense_s(where)
        assert (BreakEvens(where).of("topk").gbps > gbps) == wins


@given(st.floats(-1.99, 3.99))
def test_a_crossing_is_found_to_one_percent(exponent):
    gbps = 10**exponent
    found = highest_crossing(lambda step: 1 / gbps - 1 / rate(step), MARKS)
    assert found.gbps <= gbps * (1 + 1e-9)
    assert found.gbps * 1.01 > gbps
    assert not found.loses_at_gbps


@given(st.floats(-1.99, 3.99))
def test_a_jump_is_found_as_well_as_a_slope(exponent):
    found = highest_crossing(lambda step: -1e-6 if step < STEPS * exponent else 1.0, MARKS)
    assert abs(log10(found.gbps) - exponent) <= 1.01 / STEPS


def test_never_and_always():
    never, always = (highest_crossing(lambda step, gap=gap: gap, MARKS) for gap in (0.0, -1.0))
    assert (never.gbps, str(never)) == (0.0, "never")
    assert (always.gbps, str(always)) == (inf, "always")


def test_of_several_crossings_the_highest_counts_and_the_others_are_told():
    found = highest_crossing(lambda step: 1.0 if step <= MARKS[1] or step > 700 else -1.0, MARKS)
    assert found.gbps == rate(700)
    assert found.loses_at_gbps == (0.01, rate(MARKS[1]))
    assert str(found) == f"{rate(700):.3g} Gbit/s, but not at 0.01, 0.316"
    top = highest_crossing(lambda step: 1.0 if step == MARKS[0] else -1.0, MARKS)
    assert str(top) == "10000 Gbit/s and more, but not at 0.01"
