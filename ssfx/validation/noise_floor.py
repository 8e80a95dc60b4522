"""What a perfect simulator would be scored: the recorded runs are short, and so are not exact themselves."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, median

from ssfx.validation.recorded import Comparison
from ssfx.validation.scores import Scores, score

DRAWS = 40


def ceiling(found: Sequence[Comparison], draws: int = DRAWS) -> list[Scores]:
    """Return the scores that a simulator would get which knows every run's true time, for so many other recordings.

    Another recording of a run is drawn from the steps of the one there is, with replacement (bootstrap): simulated over
    actual, divided by the run's median, is what a step differs by from what it should be. `draws` are the same each
    time. Sources: Efron 1979 for the bootstrap; steps that follow one another are taken for independent.
    """
    rng = random.Random(0)
    pairs = [one.pair(by="pace") for one in found]
    steps = [[step.predicted_s / step.actual_s for step in one.steps] for one in found]
    exact = [median(ratios) for ratios in steps]
    scores = []
    for _ in range(draws):
        off = [median(rng.choices(own, k=len(own))) / true for own, true in zip(steps, exact, strict=True)]
        scores.append(
            score([replace(pair, predicted=pair.actual * error) for pair, error in zip(pairs, off, strict=True)])
        )
    return scores


def in_words(found: Sequence[Comparison]) -> str:
    """Return in a sentence what a perfect simulator would be scored on these runs."""
    scores = ceiling(found)
    taus = sorted(one.tau for one in scores if one.tau is not None)
    inverted = sorted(len(one.telling) for one in scores)
    order = f", tau {fmean(taus):.2f} ({taus[0]:.2f} to {taus[-1]:.2f})" if taus else ""
    steps = sorted(len(one.steps) for one in found)
    return (
        f"the runs are of {steps[0]} to {steps[-1]} steps each; a simulator that knew the true time of each would be "
        f"scored a mean of {100 * fmean(one.mean for one in scores):.1f} %{order} and {fmean(inverted):.1f} pairs "
        f"inverted by > 5 % ({inverted[0]} to {inverted[-1]}), by steps drawn anew {len(scores)} times"
    )
