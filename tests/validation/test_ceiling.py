"""What the noise of the recorded runs leaves even to a simulator without an error."""

from dataclasses import replace
from statistics import fmean

import pytest

from ssfx.core.paths import results_dir
from ssfx.results.store import Store
from ssfx.validation.noise_floor import ceiling, in_words
from ssfx.validation.recorded import EXPERIMENT, comparisons, recorded_plans


@pytest.fixture(scope="module")
def found():
    rows = [row for row in Store(results_dir()).reference_rows() if row.case.experiment == EXPERIMENT]
    panel = [row for row in rows if row.case.cluster == "local" and row.case.world_size == 2]
    return comparisons(panel[:10], recorded_plans())


def biased(one, factor):
    """Return a comparison whose simulated steps take `factor` times as long."""
    steps = (replace(step, parts={k: factor * v for k, v in step.parts.items()}) for step in one.steps)
    return replace(one, steps=tuple(steps))


def test_runs_that_never_differ_from_themselves_leave_nothing(found):
    alike = [replace(one, steps=one.steps[:1] * 9) for one in found]
    for scores in ceiling(alike, 5):
        assert scores.mean == pytest.approx(0, abs=1e-12)
        assert scores.tau == pytest.approx(1.0)
        assert scores.telling == ()


def test_what_is_left_is_of_the_runs_and_not_of_the_simulations(found):
    before = ceiling(found, 5)
    assert 0.001 < fmean(one.mean for one in before) < 0.1
    after = ceiling([biased(one, 1.5) for one in found], 5)
    assert [one.mean for one in after] == pytest.approx([one.mean for one in before])
    assert [one.tau for one in after] == [one.tau for one in before]


def test_longer_runs_leave_less(found):
    short = [replace(one, steps=one.steps[::4]) for one in found]
    long = [replace(one, steps=one.steps[::4] * 9) for one in found]
    assert fmean(one.mean for one in ceiling(long)) < 0.6 * fmean(one.mean for one in ceiling(short))


def test_it_is_said_in_a_sentence(found):
    said = in_words(found)
    assert f"the runs are of {len(found[0].steps)} to" in said
    assert "by steps drawn anew 40 times" in said
