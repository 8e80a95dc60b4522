"""The curves of extra steps, held against long runs that they have not seen: without one network, without one ratio.

Beside them stand a law that expects no effect of any method, and the nearest recorded row of the class. Errors are in
logarithms of steps: twice too many and half too few count alike.
"""

from collections.abc import Callable, Sequence
from math import exp, log1p, log2
from statistics import fmean, median, mode
from typing import Any

from experiments.common.validation.groups import Group
from experiments.common.validation.scores import Pair
from ssfx.lab.calibration.extra_steps import FEWEST_NETWORKS, Record, at_usual, expected, fitted, recorded, records
from ssfx.schemes.search.recorded_network import in_words

NAME = "quality"
BY_NETWORK, BY_RATIO = "quality of another network", "quality at another ratio"
"""Names of the two groups."""
LITTLE = log1p(0.05)
"""Logarithm of steps over dense up to which a method counts as one that costs little."""
NEAR = 2.0
"""Blind to a ratio: no record of the class is nearer than by this factor."""
NONE: dict[str, Any] = {"classes": {}}
"""Curves where fewer networks are left than an interval needs."""
FITTED = "records of ssfx/data/extra_steps.json but those that are scored"


def quality(found: Sequence[Record] | None = None) -> list[Group]:
    """Return the group of each way to be blind that leaves something to answer from; `found`: of these records."""
    every = [one for one in (records(recorded()) if found is None else found) if one.decides]
    groups = (
        _group(BY_NETWORK, "without one network at a time", every, lambda one: one.network, _of_network),
        _group(BY_RATIO, "without one ratio at a time", every, lambda one: (one.kind, one.ratio), _near),
    )
    return [group for group in groups if group is not None]


def _of_network(one: Record, other: Record) -> bool:
    return one.network == other.network


def _near(one: Record, other: Record) -> bool:
    return one.kind == other.kind and max(one.ratio / other.ratio, other.ratio / one.ratio) <= NEAR


def _group(
    name: str,
    how: str,
    every: Sequence[Record],
    key: Callable[[Record], object],
    hidden: Callable[[Record, Record], bool],
) -> Group | None:
    """Return the group of cases, on as many ranks and of the batch that most runs of their training have, if any."""
    cases, seen = at_usual(every), {one: [other for other in every if not hidden(one, other)] for one in every}
    laws: dict[object, dict[str, Any]] = {}
    for one in cases:
        several = len({other.network for other in seen[one] if other.kind == one.kind}) >= FEWEST_NETWORKS
        if several and key(one) not in laws:
            laws[key(one)] = fitted(seen[one])
    known = {one: expected(law, one) for one in cases if one.kind in (law := laws.get(key(one), NONE))["classes"]}
    curve = {one: middle for one, (_, middle, _) in known.items()}
    told = {
        "the curves": curve,
        "the nearest row": {one: nearest(seen[one], one) for one in curve},
        "the nearest row of as many steps": {one: nearest(seen[one], one, octave_of_steps=1.0) for one in curve},
        "no effect": dict.fromkeys(curve, 0.0),
    }
    longer = [one for one in curve if one.steps > mode(other.steps for other in every) and not one.at_least]
    held = [low <= one.value <= high for one, (low, _, high) in known.items() if not one.at_least]
    there = sum(not one.at_least for one in cases)
    pairs = [pair_of(one, middle) for one, middle in curve.items() if not one.at_least]
    if not pairs:
        return None
    notes = (
        f"mean |log error|: {_scores(told, list(curve))}",
        f"the curves answer in {len(pairs)} of {there} cases, and their 80 % interval holds {100 * fmean(held):.0f} %",
        f"{len(cases) - there} more never reached half of the qualities of dense training, and of "
        f"{sum(curve.get(one, 0.0) > LITTLE for one in cases if one.at_least)} the curves expect over 5 % more steps",
        *([f"the {len(longer)} of longer trainings alone: {_scores(told, longer)}"] if longer else []),
    )
    title = f"{name}: steps over those of dense training, {how}"
    return Group(title, FITTED, f"{len(pairs)} of long runs", tuple(pairs), (), notes, unit="x", over_dense=True)


def _scores(told: dict[str, dict[Record, float]], cases: Sequence[Record]) -> str:
    """Return by predictor the mean error in logarithms, and how many methods that cost little it recognises."""
    return "; ".join(f"{_scored(predicted, cases)} by {name}" for name, predicted in told.items())


def _scored(predicted: dict[Record, float], cases: Sequence[Record]) -> str:
    errors = [abs(predicted[one] - one.value) for one in cases if not one.at_least]
    said = {one for one in cases if predicted[one] <= LITTLE}
    cheap = {one for one in cases if one.value <= LITTLE and not one.at_least}
    found = f"{len(said & cheap)} of {len(cheap)} methods that need at most 5 % more steps are recognised"
    return f"{fmean(errors):.3f} ({found}, {len(said - cheap)} wrongly)"


def nearest(seen: Sequence[Record], one: Record, octave_of_steps: float = 0.0) -> float:
    """Return the median of the nearest records of the class: by octaves of compression, family and optimizer.

    Twice the steps are as far as `octave_of_steps` octaves of compression.
    """

    def far(other: Record) -> float:
        families = other.trained.family != one.trained.family
        optimizers = other.trained.optimizer != one.trained.optimizer
        steps = octave_of_steps * abs(log2(other.steps / one.steps))
        return abs(log2(other.ratio / one.ratio)) + steps + families + 0.5 * optimizers

    own = [other for other in seen if other.kind == one.kind]
    least = min(map(far, own))
    return median(other.value for other in own if far(other) < least + 0.25)


def pair_of(one: Record, middle: float) -> Pair:
    """Return steps over those of dense training, predicted and actual."""
    kept = "" if one.density is None else f" of {one.density:g}"
    panel = f"{one.network} ({in_words(one.trained.family, one.trained.optimizer)})"
    return Pair(panel, f"{one.said['words']}{kept}, {one.ratio:.3g}x", exp(middle), exp(one.value), whole_step=False)
