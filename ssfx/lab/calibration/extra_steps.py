"""The curves of extra steps, fitted to recorded runs: ssfx/data/extra_steps.json.

`python -m ssfx.lab.calibration.extra_steps` writes it from the rows of experiment=long_quality and of
experiment=horizon in results/reference; a test holds both equal. Its formula is that of
`ssfx.schemes.search.extra_steps`, which reads it for `scheme=auto` and `ssfx advise`.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import log
from statistics import fmean
from typing import Any

from ssfx.compressors import build
from ssfx.core.files import write_json
from ssfx.core.lazy import numpy as np
from ssfx.core.paths import data_dir, reference_dir
from ssfx.core.rows import Row
from ssfx.core.spec import name_of
from ssfx.lab.calibration.long_runs import (
    EXPERIMENTS,
    LogSteps,
    at_usual_batch,
    batch_of,
    best_so_far,
    dense_runs,
    log_steps,
    long_rows,
    place,
)
from ssfx.lab.calibration.method_words import is_one_method, said_of
from ssfx.lab.results.store import read_rows
from ssfx.perf_model.operator_counts import model_work
from ssfx.schemes.search import extra_steps
from ssfx.schemes.search.extra_steps import NOISE, counted_in, height, variant
from ssfx.schemes.search.recorded_network import Network, family_of, in_words
from ssfx.schemes.transport import keeps_fraction

SOURCES = tuple(f"{name}_local.jsonl" for name in EXPERIMENTS)
"""The files of rows."""
AGREE = 0.03
"""Final qualities of dense runs that differ by seed alone may differ by so much in the mean, or their training decides
nothing."""
FEWEST_NETWORKS = 2
"""Networks of which a method has to be recorded: no other interval is one over networks."""
HELD = 0.8
"""Share of the records of a network left out that an interval has to hold."""
SHRINK = 0.1
"""What holds a term of a family and an optimizer at its class's 1: the variance of records, 0.15 squared, over that of
terms, 0.5 squared."""
HOLD = 0.02
"""The same for an exponent, at 0: 0.15 squared over 1 squared."""
ROUNDS = 15
"""Of fitting curves, terms and exponents in turn; they change by less than a thousandth in the last ones."""
POWERS = tuple(power / 100 for power in range(100))
"""Exponents that are tried."""


@dataclass(frozen=True, eq=False)
class Record:
    """What runs of one method needed in one training, on one number of ranks and batch; they differ by seed."""

    rows: tuple[Row, ...]
    logs: tuple[LogSteps, ...]
    decides: bool

    @property
    def scheme(self) -> str:
        """The scheme."""
        return self.rows[0].case.scheme

    @property
    def compressor(self) -> str:
        """The compressor."""
        return str(self.rows[0].case.compressor)

    @property
    def density(self) -> float | None:
        """The density, None where it means nothing."""
        return self.rows[0].case.density

    @property
    def network(self) -> str:
        """What was trained."""
        return self.rows[0].case.model

    @cached_property
    def said(self) -> dict[str, str]:
        """Words, collective and compressor calls."""
        return said_of(self.scheme, self.compressor)

    @cached_property
    def kind(self) -> str:
        """The class."""
        one = build(self.compressor)
        if one.lossless:
            return "sums in 16 bits"
        if keeps_fraction(self.compressor) or one.sparse or name_of(self.compressor) == "block_topk":
            return "selected with feedback"
        if "sign" in self.compressor:
            return "signs"
        return "low rank" if one.additive else "quantised"

    @cached_property
    def trained(self) -> Network:
        """The network as the curves know it."""
        tensors = model_work(self.network).tensors
        return Network(family_of(tensors), self.rows[0].case.optimizer, tensors)

    @cached_property
    def ratio(self) -> float:
        """Compression of the network by the method."""
        return self.trained.compression(self.compressor, self.density or 1.0, self.said["calls"])

    @cached_property
    def batch(self) -> int:
        """Tokens or images of a step."""
        return batch_of(self.rows[0])

    @property
    def steps(self) -> int:
        """Steps of the training."""
        return self.rows[0].case.steps

    @property
    def value(self) -> float:
        """log(steps over dense), the mean over seeds; a lower bound where `at_least`."""
        return fmean(one.value for one in self.logs)

    @property
    def at_least(self) -> bool:
        """Whether half of the runs or more did not come to half of the qualities."""
        return 2 * sum(one.at_least for one in self.logs) >= len(self.logs)


def records(rows: Iterable[Row]) -> list[Record]:
    """Return the records of all methods, batches and rates that have a dense run of their setting, ranks and seed.

    Those decide whose training agrees between seeds, and whose method was recorded of FEWEST_NETWORKS.
    """
    # The size of a node, which commands put in, is no option of a method.
    long = long_rows(
        row
        for row in rows
        if row.case.target_metric is not None and row.case.scheme_options.keys() <= {"ranks_per_node"}
    )
    dense, agree = dense_runs(long), agreeing(long)
    groups: dict[tuple[Any, ...], list[tuple[Row, LogSteps]]] = defaultdict(list)
    for row in sorted(long, key=lambda one: one.case.seed):
        one, twin = row.case, dense.get(place(row))
        if twin is not None and is_one_method(row) and (logs := log_steps(twin, row)) is not None:
            scheme = "fused_all" if one.scheme == "ddp_fp16" else one.scheme
            groups[(scheme, str(one.compressor), one.density or 0.0, *place(row)[:3])].append((row, logs))
    networks: dict[str, set[str]] = defaultdict(set)
    for (_, spec, _, setting, *_), runs in groups.items():
        networks[variant(spec)] |= {row.case.model for row, _ in runs if setting in agree}
    found = []
    for key, runs in sorted(groups.items(), key=str):
        decides = key[3] in agree and len(networks[variant(key[1])]) >= FEWEST_NETWORKS
        found.append(Record(tuple(row for row, _ in runs), tuple(logs for _, logs in runs), decides))
    return found


def agreeing(rows: Iterable[Row]) -> set[str]:
    """Return the settings in which dense runs of two seeds or more, alike otherwise, end within AGREE of each other.

    By the mean over pairs: the range of more seeds is wider by their number alone.
    """
    ends: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for at_place, row in dense_runs(rows).items():
        ends[at_place[:3]].append(best_so_far(row, str(row.case.target_metric))[-1][1])
    several = {key: own for key, own in ends.items() if len(own) > 1}
    apart = {key[0] for key, own in several.items() if fmean(_differ(own)) > AGREE}
    return {key[0] for key in several} - apart


def _differ(ends: Sequence[float]) -> list[float]:
    return [max(pair) / min(pair) - 1 for pair in combinations(ends, 2)]


def at_usual(found: Sequence[Record]) -> list[Record]:
    """Return the records on as many ranks and of the batch that most runs of their setting have."""
    usual = {row.run_id for row in at_usual_batch(row for one in found for row in one.rows)}
    return [one for one in found if one.rows[0].run_id in usual]


# ---- the fit --------------------------------------------------------------------------------------------------------


def fitted(every: Sequence[Record]) -> dict[str, Any]:
    """Return curves with intervals, as the file has them; of what decides.

    An interval is of errors, relative to NOISE and the expectation, on networks that the curves were blind to. Six
    networks are too few for the middle 80 % of them: it is the narrowest middle that holds HELD of the records of a
    network left out.
    """
    found = [one for one in every if one.decides]
    law = _curves(found)
    blind = {name: _curves([one for one in found if one.network != name]) for name in {one.network for one in found}}
    errors = [(one, _error(blind[one.network], one)) for one in found if one.kind in blind[one.network]["classes"]]
    spans = np.arange(HELD, 1.0, 0.01)
    span = next((one for one in spans if _held(errors, one) >= HELD), 1.0)
    for kind, own in law["classes"].items():
        own["interval"] = [round(error, 4) for error in _interval(errors, kind, span)]
    return law


def _curves(found: Sequence[Record]) -> dict[str, Any]:
    """Return curves without intervals: curves, terms and exponents are fitted in turn, by least squares of log(steps).

    The terms of a class have a mean of 1 over its records: else curves would rise, and terms fall, with every round.
    """
    kinds = np.array([one.kind for one in found])
    pairs = np.array([in_words(one.trained.family, one.trained.optimizer) for one in found])
    usual = {what: _usual(found, what) for what in {counted_in(one.trained.family) for one in found}}
    steps = Counter(one.steps for one in found).most_common(1)[0][0]
    networks = {
        length: {one.network for one in found if one.steps == length} for length in {one.steps for one in found}
    }
    most = max(length for length, own in networks.items() if len(own) >= FEWEST_NETWORKS or length == steps)
    least = np.array([one.value for one in found])
    bound = np.array([one.at_least for one in found])
    # Compressions within a tenth are one: else isotonic steps stand between 50.06 and 50.07.
    x = np.array([round(log(one.ratio), 1) for one in found])
    larger = np.array([log(one.batch / usual[counted_in(one.trained.family)]) for one in found])
    longer = np.array([log(min(max(one.steps, steps), most) / steps) for one in found])
    classes = {str(kind): kinds == kind for kind in sorted(set(kinds))}
    # First of what is known; then what is only known to be at least so much counts as what is expected, if more. Of a
    # class without anything known bounds are what is known: expecting and fitting in turn would only ever rise.
    counts = np.where(bound, 0.0, 1.0)
    for own in classes.values():
        counts[own] = counts[own] if counts[own].any() else 1.0
    terms, exponent, falls, y = np.ones(len(found)), 0.0, np.zeros(len(found)), least
    for _ in range(2):
        for _ in range(ROUNDS):
            scale = np.exp(exponent * larger - falls * longer)
            times = terms * scale
            lines = {kind: _line(x, y / times, counts * times**2, own) for kind, own in classes.items()}
            heights = np.array([height(*lines[kind], one) for kind, one in zip(kinds, x, strict=True)])
            for own in (mask & (pairs == pair) for mask in classes.values() for pair in set(pairs[mask])):
                alone = (heights * scale)[own]
                terms[own] = max(0.0, (SHRINK + (counts * y)[own] @ alone) / (SHRINK + counts[own] @ alone**2))
            for own in classes.values():
                terms[own] /= max(terms[own].mean(), SHRINK)
            heights = heights * terms
            exponent = _power(y, heights * np.exp(-falls * longer), larger, counts)
            for own in classes.values():
                falls[own] = _power(y[own], (heights * np.exp(exponent * larger))[own], -longer[own], counts[own])
        middle = heights * np.exp(exponent * larger - falls * longer)
        y, counts = np.where(bound, np.maximum(least, middle), least), np.ones(len(found))
    law = {
        kind: {
            "log_compression": lines[kind][0],
            "log_steps": [round(float(height), 4) for height in lines[kind][1]],
            "terms": {str(pair): round(float(terms[own & (pairs == pair)][0]), 4) for pair in sorted(set(pairs[own]))},
            "steps_exponent": round(float(falls[own][0]), 4),
            "interval": [0.0, 0.0],
            **_counts([one for one in found if one.kind == kind]),
        }
        for kind, own in classes.items()
    }
    largest = {
        what: max(one.batch for one in found if counted_in(one.trained.family) == what) for what in sorted(usual)
    }
    batch = {"exponent": round(float(exponent), 4), "usual": dict(sorted(usual.items())), "largest": largest}
    return {"classes": law, "batch": batch, "steps": {"usual": steps, "most": most}}


def _power(y: Any, base: Any, by: Any, counts: Any) -> float:
    """Return the power at which base x e ^ (power x by) is nearest to y by least squares, held at 0 by HOLD."""
    misses = np.square(y - base * np.exp(np.outer(POWERS, by))) @ counts + HOLD * np.square(POWERS)
    return float(POWERS[misses.argmin()])


def _line(x: Any, y: Any, weights: Any, own: Any) -> tuple[list[float], list[float]]:
    """Return the corners of the curve that never falls and is nearest to the points of one class."""
    from sklearn.isotonic import IsotonicRegression  # late: it brings pandas, and pages read records alone

    line = IsotonicRegression(y_min=0.0, out_of_bounds="clip").fit(x[own], y[own], sample_weight=weights[own])
    corners = sorted(set(x[own].tolist()))
    return corners, line.predict(corners).tolist()


def _usual(found: Sequence[Record], what: str) -> int:
    counted = Counter(one.batch for one in found if counted_in(one.trained.family) == what)
    return counted.most_common(1)[0][0]


def _counts(own: Sequence[Record]) -> dict[str, Any]:
    runs = Counter[str]()
    for one in own:
        runs[in_words(one.trained.family, one.trained.optimizer)] += len(one.rows)
    return {"runs": runs.total(), "networks": len({one.network for one in own}), "own": dict(sorted(runs.items()))}


def expected(law: dict[str, Any], one: Record) -> tuple[float, float, float]:
    """Return the interval and the expectation of a record by curves."""
    trained = one.trained
    return extra_steps.log_steps(law, one.kind, trained.family, trained.optimizer, one.ratio, one.batch, one.steps)


def _error(law: dict[str, Any], one: Record) -> float:
    _, middle, _ = expected(law, one)
    return (one.value - middle) / (NOISE + middle)


Errors = Sequence[tuple[Record, float]]


def _interval(errors: Errors, kind: str, span: float) -> tuple[float, float]:
    """Return the middle `span` of the errors of a class; of all classes where fewer than three networks have it."""
    own = [(one, error) for one, error in errors if one.kind == kind]
    if len({one.network for one, _ in own}) < 3:
        own = list(errors)
    low, high = np.quantile([error for _, error in own], [(1 - span) / 2, (1 + span) / 2])
    return float(low), float(high)


def _held(errors: Errors, span: float) -> float:
    """Return the share of records inside the interval that the errors of other networks make."""
    held = []
    for one, error in errors:
        others = [other for other in errors if other[0].network != one.network]
        low, high = _interval(others, one.kind, span)
        if not one.at_least:
            held.append(low <= error <= high)
    return fmean(held or [1.0])


# ---- the file -------------------------------------------------------------------------------------------------------


def content(rows: Iterable[Row]) -> dict[str, Any]:
    """Return the content of the file."""
    every = records(rows)
    found = [one for one in every if one.decides]
    trainings = {(one.trained.family, one.trained.optimizer, one.rows[0].case.clip_norm is not None) for one in found}
    methods: dict[tuple[str, ...], dict[str, Any]] = {}
    for one in found:
        key = (one.said["collective"], one.said["calls"], one.compressor, str(one.density))
        least = min(one.ratio, methods.get(key, {}).get("compression", one.ratio))
        methods[key] = {
            "class": one.kind,
            **one.said,
            "compressor": one.compressor,
            "density": one.density,
            "compression": round(least, 3),
        }
    return {
        "origin": {
            "kind": "measured",
            "note": f"recorded runs of experiment={' and '.join(EXPERIMENTS)} in results/reference",
        },
        "trainings": [
            {"family": family, "optimizer": optimizer, "clipped": clipped}
            for family, optimizer, clipped in sorted(trainings)
        ],
        **fitted(found),
        "methods": [methods[key] for key in sorted(methods)],
    }


def text_of(rows: Iterable[Row]) -> str:
    """Return the text of the file."""
    return json.dumps(content(rows), indent=1)


def recorded() -> list[Row]:
    """Return the rows that the file is made of."""
    return [row for name in SOURCES for row in read_rows(reference_dir() / name)]


if __name__ == "__main__":
    write_json(data_dir() / "extra_steps.json", text_of(recorded()))
