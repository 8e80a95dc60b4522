"""The groups that `ssfx validate` scores, and what each may not have been calibrated on."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from typing import Literal

from experiments.common.claims.grouped import grouped
from experiments.common.claims.ledger import claims_by_id
from experiments.common.validation.recorded import EXPERIMENT, Comparison, comparisons, recorded_plans
from experiments.common.validation.scores import Pair, Scores, percent, score
from ssfx.core.errors import RunError
from ssfx.core.paths import results_dir
from ssfx.core.rows import Row
from ssfx.lab.results.comparisons import metric
from ssfx.lab.results.store import Store

Part = tuple[str, Callable[[Pair], bool]]
"""A part of a group: its name, and which pairs belong to it."""


def parts_by(names: Iterable[str], belongs: Callable[[Pair, str], bool]) -> tuple[Part, ...]:
    """Return a part for each name, of the pairs that belong to it."""
    return tuple((name, lambda pair, name=name: belongs(pair, name)) for name in names)


@dataclass(frozen=True)
class Group:
    """Predictions of one kind, in seconds, Gbit/s or as ratios (`unit` "x").

    `sets` cuts them into named parts that are scored one by one, besides the whole. comparisons: the recorded runs
    behind the pairs, where these are such. beyond_compute: of recorded runs, the part of each iteration beyond a pass
    that exchanges nothing. over_dense: every ratio is of a method over dense training, so that 1 is that of no effect,
    whether or not a claim states it.
    """

    title: str
    calibrated_on: str
    tested_on: str
    pairs: tuple[Pair, ...]
    sets: tuple[Part, ...] = ()
    notes: tuple[str, ...] = ()
    unit: Literal["s", "x", "Gbit/s"] = "s"
    comparisons: tuple[Comparison, ...] = ()
    beyond_compute: tuple[Pair, ...] = ()
    over_dense: bool = False

    @property
    def name(self) -> str:
        """The title's beginning."""
        return self.title.partition(":")[0]

    @cached_property
    def total(self) -> Scores:
        """Scores of all pairs."""
        return score(self.pairs)

    def scores(self) -> list[tuple[str, Scores]]:
        """Return the scores of every set that is not empty, and of all pairs as the last one."""
        found = []
        for name, belongs in self.sets:
            chosen = [pair for pair in self.pairs if belongs(pair)]
            if chosen:
                found.append((name, score(chosen)))
        return [*found, ("all", self.total)]

    def cells(self, name: str, one: Scores, form: str, bias_form: str) -> tuple[str, ...]:
        """Return the scores of a set as cells of a table, errors in percent in the form given."""
        beyond = self.beyond(name)
        errors = (one.mean, self.no_effect(name), beyond.mean if beyond else None, one.median, one.maximum)
        return (
            str(one.count),
            *(percent(share, form) for share in errors),
            percent(one.bias, bias_form),
            "-" if one.tau is None else f"{one.tau:.2f}",
            f"{one.ordered} of {one.orderings}" if one.orderings else "-",
        )

    def beyond(self, name: str = "all") -> Scores | None:
        """Return the scores of the part beyond compute, of the runs in the set `name`; None where there are none."""
        belongs = dict(self.sets).get(name)
        chosen = [pair for pair in self.beyond_compute if belongs is None or belongs(pair)]
        return score(chosen) if chosen else None

    def no_effect(self, name: str = "all") -> float | None:
        """Return the mean error of a prediction in which no method has any effect, over the ratios in a set.

        Each of its ratios is 1. None where the set has no ratios of times or steps; a scaling factor is none.
        """
        belongs, known = dict(self.sets).get(name), claims_by_id()
        chosen = [
            replace(pair, predicted=1.0)
            for pair in self.pairs
            if self.unit == "x"
            and (belongs is None or belongs(pair))
            and (self.over_dense or (pair.claim in known and known[pair.claim].metric != "scaling_factor"))
        ]
        return score(chosen).mean if chosen else None


def recorded() -> list[Group]:
    """Return the real and emulated runs of the reference rows, each with the simulation of its own plan, in two groups.

    First from calibration alone; then step by step, with the compute time measured before each step and its density.
    Of repeats of a case, the one that took the median time is scored.
    """
    rows = [row for row in Store(results_dir()).reference_rows() if row.case.experiment == EXPERIMENT]
    if not rows:
        raise RunError(f"no reference rows of experiment={EXPERIMENT}: ssfx run experiment={EXPERIMENT} cluster=...")
    scored = middle_runs(rows)
    found = comparisons(scored, recorded_plans())
    clusters = sorted({(str(row.case.cluster), row.case.world_size) for row in rows})
    places = [f"{cluster} x{ranks}" for cluster, ranks in clusters]
    sets = (
        *parts_by(places, lambda pair, place: pair.panel.endswith(f" {place}")),
        *parts_by(sorted({row.case.model for row in rows}), lambda pair, model: pair.panel.startswith(f"{model} ")),
        *parts_by(dict.fromkeys(row.case.scheme for row in rows), lambda pair, scheme: pair.label == scheme),
    )
    disturbed = sum((row.manifest.get("background_cores") or 0.0) > 0.2 for row in rows)
    spread = median(pair.spread or 0.0 for pair in (one.pair() for one in found))
    compute = sorted(one.compute for one in found)
    calibrated_on = (
        "microbenchmarks of this machine (exchanges, compressors, overheads, passes of each model without exchange); "
        "no training run"
    )
    chosen = f", of each case the median one ({len(scored)})" if len(scored) < len(rows) else ""
    tested_on = f"{len(rows)} training runs{chosen}: {', '.join(places)}"
    noise = (
        f"the runs' own spread (p10 to p90 of a run's steps, median over runs) is {100 * spread:.0f} %; "
        f"{disturbed} of {len(rows)} runs had other work on more than 0.2 cores"
    )
    drift = (
        f"passes without exchange, one before every step, took {compute[0]:.2f} to {compute[-1]:.2f} times their "
        f"profile (median {median(compute):.2f}): that much the speed of the shared machine changed"
    )
    notes = (noise, drift, by_known_density(found), *repeatability(rows))
    return [
        Group(
            "recorded: simulator against real runs on one machine",
            f"{calibrated_on}; the plan is the one that the run executed",
            tested_on,
            tuple(one.pair() for one in found),
            sets,
            notes,
            beyond_compute=_beyond(found, "calibration"),
        ),
        Group(
            "recorded, step by step: the same with the compute time measured before each step",
            f"{calibrated_on}; but before every step of the scored run a pass without exchange says how fast its "
            "machine computes, and the step's achieved density how much its compressor let pass",
            tested_on,
            tuple(one.pair(by="steps") for one in found),
            sets,
            comparisons=tuple(found),
            beyond_compute=_beyond(found, "steps"),
        ),
    ]


def _beyond(found: Sequence[Comparison], by: Literal["calibration", "steps"]) -> tuple[Pair, ...]:
    return tuple(pair for one in found if (pair := one.beyond_compute(by)) is not None)


def by_known_density(found: Sequence[Comparison]) -> str:
    """Return in a sentence what the simulations are scored that know how much each compressor lets pass."""
    scores = score([one.pair(by="density") for one in found])
    return (
        "with what each compressor let pass in the same training on other networks (median): mean "
        f"{100 * scores.mean:.1f} %, maximum {100 * scores.maximum:.1f} %, bias {100 * scores.bias:+.1f} %, tau "
        f"{scores.tau or 0.0:.2f}, {len(scores.inversions)} pairs inverted by > 5 %"
    )


def middle_runs(rows: Sequence[Row]) -> list[Row]:
    """Return of each case the run whose iteration time is the median of its repeats, of two the faster one."""
    return [sorted(runs, key=lambda row: metric(row, "iteration_s"))[(len(runs) - 1) // 2] for runs in _repeats(rows)]


def repeatability(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return in a sentence how far apart repeats of a case are, which no simulation can undercut; empty without any."""
    same = [[metric(row, "iteration_s") for row in runs] for runs in _repeats(rows) if len(runs) > 1]
    if not same:
        return ()
    apart = [(max(times) - min(times)) / median(times) for times in same]
    return (
        f"repeats of the same case are {100 * median(apart):.1f} % apart (median over {len(apart)} cases, at most "
        f"{100 * max(apart):.0f} %): no simulation can be nearer to all of them than half of that",
    )


def _repeats(rows: Sequence[Row]) -> list[list[Row]]:
    return list(grouped(rows, lambda row: replace(row.case, repeat=0).run_id).values())
