"""Signs and ranks of gaps to dense training, and which of short and long runs a figure takes."""

from __future__ import annotations

import pytest
from figures.synthetic import row

from experiments.common.evaluation.gaps import Finals, judged_gaps, longest, trained
from ssfx.core.rows import Row

DENSE = (0.90, 0.91, 0.92)
PRINTED = {"good": 0.99, "bad": 0.90, "even": 0.999}
CLAIMS = {"good": "a", "bad": "b"}


def outcome(**values: tuple[float, ...]) -> dict[str, str]:
    """Return the outcomes of good and bad, whose gaps the paper prints as 1 and 10 %."""
    sets = [Finals({"ddp": DENSE, **values}, "100 steps")]
    return {one.claim: one.outcome for one in judged_gaps(sets, CLAIMS, PRINTED)}


def test_sign_and_rank_both_count() -> None:
    low, lower = (0.84, 0.85, 0.86), (0.70, 0.71, 0.72)
    assert outcome(good=low, bad=lower) == {"a": "agrees", "b": "agrees"}
    assert outcome(good=lower, bad=low) == {"a": "partly", "b": "partly"}  # below, in the other order
    assert outcome(good=(0.97, 0.98, 0.99), bad=(0.994, 0.995, 0.996)) == {"a": "disagrees", "b": "disagrees"}
    assert outcome(good=(0.80, 0.90, 1.01), bad=(0.81, 0.91, 1.02)) == {"a": "not comparable", "b": "not comparable"}


def test_without_another_method_the_sign_is_partly_and_a_single_seed_says_nothing() -> None:
    assert outcome(bad=(0.70, 0.71, 0.72)) == {"b": "partly"}
    assert outcome(bad=(0.99, 0.995, 1.0)) == {"b": "disagrees"}
    assert outcome(bad=(0.7,)) == {}


def test_a_gap_that_is_printed_as_even_is_held_to_the_noise_and_ties_to_each_other() -> None:
    tied = {"one": 1.0, "other": 1.0}
    claims = {"one": "a", "other": "b"}
    same = Finals({"ddp": DENSE, "one": (0.90, 0.91, 0.93), "other": (0.90, 0.92, 0.92)}, "100 steps")
    assert {one.outcome for one in judged_gaps([same], claims, tied)} == {"agrees"}
    worse = Finals({"ddp": DENSE, "one": (0.90, 0.91, 0.93), "other": (0.70, 0.71, 0.72)}, "100 steps")
    assert [one.outcome for one in judged_gaps([worse], claims, tied)] == ["partly", "disagrees"]


def test_of_several_sets_the_first_that_knows_the_method_counts() -> None:
    long = Finals({"ddp": DENSE, "good": (0.80, 0.81, 0.82)}, "2,000 steps")
    short = Finals({"ddp": DENSE, "good": (0.99, 0.99, 0.98), "bad": (0.8, 0.8, 0.81)}, "100 steps")
    reasons = {one.claim: one.reason for one in judged_gaps([long, short], CLAIMS, PRINTED)}
    assert "2,000 steps" in reasons["a"]
    assert "100 steps" in reasons["b"]


@pytest.mark.parametrize(("seeds", "expected"), [(1, "time_to_quality"), (2, "long_quality")])
def test_long_runs_are_taken_once_they_have_two_seeds_of_every_method(seeds: int, expected: str) -> None:
    def runs(experiment: str, count: int, steps: int, *schemes: str) -> list[Row]:
        return [row(experiment=experiment, scheme=scheme, repeat=seed, steps=steps)
                for scheme in schemes for seed in range(count)]  # fmt: skip

    rows = [*runs("time_to_quality", 3, 100, "ddp", "ssfusion_oi"),
            *runs("long_quality", seeds, 2000, "ddp", "ssfusion_oi", "fused_all")]  # fmt: skip
    taken = longest(rows, lambda row: row.case.scheme.replace("fused_all", ""), {"ddp", "ssfusion_oi"})
    assert {one.case.experiment for one in taken} == {expected}
    assert "fused_all" not in {one.case.scheme for one in taken}
    assert trained(taken) == ("2,000 steps, 2 seeds" if seeds == 2 else "100 steps, 3 seeds")
