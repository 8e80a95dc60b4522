"""Counts of density ratios: nothing is lost, bins are where they say, quantiles are those of the data."""

import math

from hypothesis import given
from hypothesis import strategies as st

from ssfx.lab.results.density_bins import BINS_PER_OCTAVE, NOTHING, binned, centre, merged, quantile

RATIOS = st.lists(st.one_of(st.just(0.0), st.floats(1e-2, 1e2)), min_size=1)


@given(RATIOS)
def test_every_ratio_is_in_one_bin_whose_centre_is_near(ratios):
    assert sum(binned(ratios).values()) == len(ratios)
    for ratio in ratios:
        (name,) = binned([ratio])
        if ratio:
            assert abs(math.log2(centre(name) / ratio)) <= 0.5001 / BINS_PER_OCTAVE
        else:
            assert (name, centre(name)) == (NOTHING, 0.0)


@given(RATIOS, RATIOS)
def test_counts_of_parts_add_up_to_those_of_the_whole(some, others):
    assert merged([binned(some), binned(others)]) == binned([*some, *others])


@given(RATIOS, st.floats(0, 1))
def test_a_quantile_is_that_of_the_data_within_a_bin(ratios, share):
    at = sorted(ratios)[max(0, math.ceil(share * len(ratios)) - 1)]
    assert quantile(binned(ratios), share) == centre(next(iter(binned([at]))))


def test_far_away_ratios_stay_in_the_outermost_bins():
    assert binned([1e9, 2.0**10, 1e-9]) == {"80": 2, "-80": 1}
    assert binned([]) == {}
