"""Gaps of quality between methods in long runs: which rows a method has, the noise of a seed, verdicts on claims.

The level of a quality is of the paper's network and data. What a reduced scale can show is on which side of another
method a method ends, and whether the methods stand in the paper's order. Methods are compared seed by seed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import expm1, isnan, log, nan, sqrt
from statistics import fmean
from typing import Any, Literal

from experiments.common.claims.grouped import grouped
from experiments.common.claims.verdicts import Outcome, Verdict
from experiments.common.evaluation.noise import FEWEST, Score, noise_of, t95
from experiments.common.figures.auto import AUTO
from ssfx.core.errors import RunError
from ssfx.core.rows import Row
from ssfx.lab.calibration import long_runs
from ssfx.lab.calibration.long_runs import once
from ssfx.lab.results.comparisons import sent_mark

SCALE = "small networks on a CPU, not the paper's"
UNCONVERGED = "the paper trains full networks to the end; ours are small and stop after 2,000 steps, far from it"
"""Why a claim of equal quality is neither held nor refuted: compressed training lags first, and may catch up."""
NO_ROW = "no long row"
"""Said of a method that no long run has: a short one is no substitute."""
ONE_SEED = "one seed"
"""Said of a method of which one seed was run, where FEWEST are needed."""
UNSHARED = "too few shared seeds"
"""Said of a method whose seeds its baseline does not have."""
SENT_MORE = "sent more"
"""Said of a method that sent far more of a small network than it was set to: the paper compares no such runs."""
CEILING = "at the ceiling"
"""Said of a method on a task that it, dense training and all others end at the best of: it tells none apart."""
BEST = 0.995
"""Accuracy or F1 from which on a run is at the best of its task."""
LONG = long_runs.EXPERIMENT
"""The experiment of long runs."""
RUNS: Mapping[str, Any] = {"experiment": LONG, "evaluate": True}
"""What figures of long runs need: those of virtual ranks too, but no simulated step."""
COMMAND = f"ssfx run experiment={LONG} data.root=DIR"
COST = "1 to 4 minutes a run on two cores"
EVEN = 0.005
"""Relative gap that a paper prints up to which it has no loss."""
RESOLUTION = 0.04
"""Half an interval up to which a gap within it counts as none: SSFusion calls 67.1 for 70.0 points about equal."""
Missing = Mapping[str, str] | Sequence[str]
"""What a verdict lacks, in words, and why: one of the words above; NO_ROW where only words are given."""
Wanted = Literal["above", "below", "equal", "clearly above", "not below"]


@dataclass(frozen=True)
class Gap:
    """The log of one method's quality over another's, seed by seed, and half of its 95 % interval.

    `mean` is not a number where no seed is shared, `half` None where noise is unknown.
    """

    mean: float
    half: float | None

    @property
    def word(self) -> str:
        """Return "above", "equal" or "below", "unknown" where the noise is."""
        if self.half is None:
            return "unknown"
        return "equal" if abs(self.mean) <= self.half else "above" if self.mean > 0 else "below"

    def holds(self, wanted: Wanted) -> bool | None:
        """Return whether the gap is as a paper has it; None where the noise leaves that open.

        "clearly above" is refuted by a gap within a noise that would not hide a gap of RESOLUTION. A gap that is merely
        "above" or "below" is refuted by the other sign alone. "equal" is of networks at their end, and left open.
        """
        if wanted == "equal":
            return None
        fine = self.half is not None and self.half <= RESOLUTION
        if self.word in ("unknown", "equal"):
            return {"not below": True, "clearly above": False}.get(wanted) if fine else None
        return self.word == wanted.removeprefix("clearly ") or (wanted == "not below" and self.word == "above")

    def __str__(self) -> str:
        if isnan(self.mean):
            return "no seed in common"
        if self.half is None:
            return f"{100 * expm1(self.mean):+.1f} %, noise unknown"
        low, high = (100 * expm1(self.mean + side * self.half) for side in (-1, 1))
        return f"{100 * expm1(self.mean):+.1f} % ({low:+.1f} to {high:+.1f})"


PAPERS_RULE = ("rule", "paper")
"""The option of a scheme that runs it as its paper does, where by default it takes the best that it knows."""
Compared = tuple[str, Gap, Wanted]
"""What is compared, the gap, and what the paper has."""


@dataclass(frozen=True)
class Task:
    """Long runs of one network: the rows of each method by what a figure calls it, dense training among them.

    `noise`: standard deviation over seeds of `score`, by default the log of quality, higher is better, without what a
    seed does to every method (`noise_of`). It is pooled over all methods that were run, shown or not, but those that
    did not train and scheme=auto; None with too few runs.
    """

    model: str
    methods: Mapping[str, Sequence[Row]]
    noise: float | None
    freedom: int
    score: Score

    def by_seed(self, method: str) -> dict[int, float]:
        """Return the score of every seed, the mean of several runs of it; empty for a method without rows."""
        found = grouped(self.methods.get(method, ()), lambda row: row.case.seed)
        return {seed: fmean(map(self.score, own)) for seed, own in sorted(found.items())}

    def shared(self, *methods: str) -> list[int]:
        """Return the seeds that each of the methods has."""
        first, *others = (self.by_seed(name) for name in methods)
        return [seed for seed in first if all(seed in other for other in others)]

    def over(self, one: str, other: str) -> list[float]:
        """Return the score of one method less that of the other, for every seed that both have."""
        first, second = self.by_seed(one), self.by_seed(other)
        return [first[seed] - second[seed] for seed in self.shared(one, other)]

    def knows(self, *methods: str) -> bool:
        """Return whether enough seeds have each of the methods, none of which sent far more than was set.

        Where all methods end at the best, nothing is known of any.
        """
        enough = len(self.shared(*methods)) >= FEWEST
        return enough and not self.at_ceiling and not any(map(self.sent, methods))

    @property
    def at_ceiling(self) -> bool:
        """Whether several methods were run, and all of them end at the best that there is."""
        rows = [row for own in self.methods.values() for row in own]
        return len(self.methods) > 1 and all(
            metric_of(row) != "perplexity" and (row.metrics[metric_of(row)] or 0.0) >= BEST for row in rows
        )

    def sent(self, method: str) -> str:
        """Return what a method sent that sent far more than was set, "dense" or "93 %", else ""; see `sent_mark`."""
        return sent_mark(self.methods.get(method, ()), ())

    def gap(self, one: str, other: str) -> Gap:
        """Return the mean gap between two methods, seed by seed."""
        pairs = self.over(one, other)
        mean = fmean(pairs) if pairs else nan
        if self.noise is None or len(pairs) < FEWEST:
            return Gap(mean, None)
        return Gap(mean, t95(self.freedom) * self.noise * sqrt(2 / len(pairs)))

    def apart(self, method: str, others: Iterable[str]) -> list[str]:
        """Return those of the others whose runs equal neither those of the method nor of another, digit by digit.

        Plans of two methods may be one on a small network: their one run is no second piece of evidence.
        """
        kept = [method]
        for name in others:
            if not any(self.by_seed(name) == self.by_seed(one) for one in kept):
                kept.append(name)
        return kept[1:]

    @property
    def steps(self) -> int:
        """Optimizer steps of each run."""
        return next(row.case.steps for own in self.methods.values() for row in own)

    @property
    def words(self) -> str:
        """Return the network, and how long it trained on how many seeds at most."""
        rows = [row for name, own in self.methods.items() if name != AUTO for row in own]
        return f"{self.model}, {trained(rows)}"


def tasks(
    rows: Iterable[Row], label: Callable[[Row], str], score: Score | None = None, *, across_ranks: bool = False
) -> list[Task]:
    """Return the tasks that rows are of; `label` names a row's method, "" for none of them.

    Those of most steps come first, of one network those of most methods. Rows of other networks, data, lengths,
    batches, learning rates or clipping are another task, and so are those of other numbers of ranks but `across_ranks`;
    who ran them is the same. Rows of an optimizer that is not the network's customary one are left out, and long runs
    on other numbers of ranks than most of their network, which the law of steps is about, but `across_ranks`.
    """
    chosen = score or log_quality
    rows = as_papers_ran(list(rows))
    if not across_ranks:
        long = [row for row in rows if row.case.experiment == long_runs.EXPERIMENT]
        others = [row for row in rows if row.case.experiment != long_runs.EXPERIMENT]
        rows = [*others, *long_runs.at_usual_batch(long)]
    # Papers train each network by its customary optimizer.
    rows = [row for row in once(rows) if long_runs.task_of(row) == row.case.model]

    def setting(row: Row) -> tuple[object, ...]:
        case = row.case
        ranks = 0 if across_ranks else case.world_size
        return case.model, case.dataset, case.steps, case.batch_size, case.lr, case.clip_norm, ranks

    made = []
    rows.sort(key=lambda row: (-row.case.steps, row.case.model, row.case.seed, row.run_id))
    for own in grouped(rows, setting).values():
        methods = grouped((row for row in own if label(row)), label)
        if methods:
            noise, freedom = noise_of(own, chosen)
            made.append(Task(own[0].case.model, methods, noise, freedom, chosen))
    return sorted(made, key=lambda task: (-task.steps, task.model, -len(task.methods)))


def task_of(found: Sequence[Task], word: str) -> Task | None:
    """Return the longest task with the word in its network's name."""
    return next((one for one in found if word in one.model), None)


def usual(row: Row) -> bool:
    """Return whether a run feeds errors back where they are to be, and sets no option but its paper's rule."""
    return long_runs.usual_memory(row) and all(one == PAPERS_RULE for one in row.case.scheme_options.items())


def as_papers_ran(rows: Sequence[Row]) -> list[Row]:
    """Return the rows but those of a scheme's own best, where a run by its paper's rule is of the same network."""
    by_rule = {(row.case.model, row.case.scheme) for row in rows if PAPERS_RULE in row.case.scheme_options.items()}
    return [
        row
        for row in rows
        if (row.case.model, row.case.scheme) not in by_rule or PAPERS_RULE in row.case.scheme_options.items()
    ]


def log_quality(row: Row) -> float:
    """Return the log of a row's final quality, of the inverse where lower is better; RunError for one without."""
    name = metric_of(row)
    value = log(max(row.metrics[name] or 0.0, 1e-9))
    return -value if name == "perplexity" else value


def metric_of(row: Row) -> str:
    """Return the metric of quality that a row has; RunError for one without."""
    for name in ("f1", "top1", "perplexity"):
        if row.metrics.get(name) is not None:
            return name
    raise RunError(
        f"row {row.run_id} ({row.case.label}) has neither f1 nor top1 nor perplexity; run with evaluate=true"
    )


def judged_gaps(
    found: Sequence[Task],
    claims: Mapping[str, str],
    printed: Mapping[str, float],
    dense: str = "ddp",
    stands_for: str = "",
    missing: Callable[[str], str | Mapping[str, str]] = str,
) -> list[Verdict]:
    """Return a verdict on the claim of each method, of tasks that know it by the first; `missing` names it where none.

    It may also name all that is missing, with what there is of each (`there_is`).

    `claims`: method -> id; `printed`: method -> the paper's quality over that of its baseline `dense`. The sign holds
    where the gap stands out of the noise on the paper's side; the rank among the methods of the task holds where the
    noise leaves the paper's alone. Agrees with both, partly with one, disagrees with neither where one of them is
    clearly otherwise; where noise leaves both open, or the paper's gap is even (UNCONVERGED), nothing is decided.
    """
    judged, absent = [], []
    for method, claim in claims.items():
        if known := next((one for one in found if one.knows(method, dense) and method in printed), None):
            judged.append(_judged(claim, method, known, printed, dense, stands_for))
        else:
            state = there_is(found, method)
            lone = state == UNSHARED and there_is(found, dense) != UNSHARED  # the baseline has too few runs, not it
            named = missing(dense if lone else method)
            why = {named: there_is(found, dense) if lone else state} if isinstance(named, str) else named
            absent.append(no_row(claim, why))
    return [*judged, *absent]


def gaps(found: Iterable[Task], *wanted: tuple[str, str, Wanted], named: Callable[[str], str] = str) -> list[Compared]:
    """Return the gap of each two methods in each task that has enough seeds of both."""
    return [
        (f"{task.model}: {named(one)} over {named(other)}", task.gap(one, other), how)
        for task in found
        for one, other, how in wanted
        if task.knows(one, other)
    ]


def judged_order(claim: str, pairs: Sequence[Compared], words: str | Sequence[Task], missing: Missing = ()) -> Verdict:
    """Return the verdict on an order of methods; `words` say of which runs. `no_row` without pairs.

    All pairs must hold; one that is refuted refutes the order. Where some hold and noise leaves the others open, it
    holds partly; where it leaves all open, `missing` methods have too few rows, or methods are to end as equals
    (UNCONVERGED), nothing is decided.
    """
    if not pairs:
        return no_row(claim, missing)
    if not isinstance(words, str):
        words = "; ".join(task.words for task in words)
    states = [gap.holds(wanted) for _, gap, wanted in pairs]
    text = "; ".join(f"{what} {gap}" for what, gap, _ in pairs)
    reason = f"Reduced scale ({words}; {SCALE})."
    outcome: Outcome = "not comparable"
    if any(wanted == "equal" for _, _, wanted in pairs):
        reason += f" Not decided: {UNCONVERGED}."
    elif False in states:
        outcome = "disagrees"
    elif missing:
        reason += f" Not decided: {lacking(missing)}."
    elif all(states):
        outcome = "agrees"
    elif any(states):
        outcome = "partly"
        reason += " The noise of seeds exceeds the other gaps."
    else:
        known = any(gap.half is not None for _, gap, _ in pairs)
        reason += f" Not decided: the noise of seeds {'exceeds the gap' if known else 'is unknown'}."
    return Verdict(claim, outcome, text, "measured", "", reason, COMMAND, COST)


def no_row(claim: str, missing: Missing = ()) -> Verdict:
    """Return the verdict on a claim about methods, or a network, of which no long run compares, or too few do.

    Where some were run, it was attempted, and the reason says what is missing.
    """
    if isinstance(missing, Mapping) and set(missing.values()) - {NO_ROW}:
        return Verdict(claim, "not comparable", "", "measured", "", lacking(missing), COMMAND, COST)
    return Verdict(claim, "not attempted", "", "none", "", f"{lacking(missing)}: {COMMAND}", COMMAND, COST)


def lacking(missing: Missing) -> str:
    """Return what is missing in words: what no long run has, one seed, other seeds, and what sent too much."""
    known = missing if isinstance(missing, Mapping) else dict.fromkeys(missing, NO_ROW)
    words = {
        NO_ROW: "no long row of {} yet",
        ONE_SEED: "one seed of {}, two are needed",
        UNSHARED: "{} trained on other seeds than what it is compared with",
        SENT_MORE: "{} sent far more of our small network than was set",
        CEILING: "{} ends where our small network can do no better, and so does every other method",
    }
    names = {why: ", ".join(name for name in known if known[name] == why) for why in words}
    return "; ".join(words[why].format(named) for why, named in names.items() if named) or f"{NO_ROW} yet"


def there_is(found: Iterable[Task], method: str) -> str:
    """Return what keeps a method from being compared in any task: NO_ROW, SENT_MORE, CEILING, ONE_SEED or UNSHARED."""
    there = [task for task in found if task.methods.get(method)]
    if there and all(task.at_ceiling for task in there):
        return CEILING
    if there and all(task.sent(method) for task in there):
        return SENT_MORE
    most = max((len(task.by_seed(method)) for task in there), default=0)
    return NO_ROW if not most else ONE_SEED if most < FEWEST else UNSHARED


def trained(rows: Sequence[Row]) -> str:
    """Return how long the runs trained, and on how many seeds at most, in words."""
    steps = sorted({row.case.steps for row in rows})
    said = f"{steps[0]:,}" if len(steps) == 1 else f"{steps[0]:,} to {steps[-1]:,}"
    seeds = len({row.case.seed for row in rows})
    return f"{said} steps, {seeds} seed{'s' * (seeds > 1)}"


def _judged(claim: str, method: str, known: Task, printed: Mapping[str, float], dense: str, stands_for: str) -> Verdict:
    gap = printed[method] - 1
    wanted: Wanted = "equal" if abs(gap) <= EVEN else "above" if gap > 0 else "below"
    ours = known.gap(method, dense)
    sign = ours.holds(wanted)
    others = [name for name in printed if name not in (method, dense) and known.knows(name, method)]
    others = known.apart(method, others)
    theirs = 1 + sum(printed[name] > printed[method] for name in others)
    ties = [name for name in others if printed[name] == printed[method]]
    words = [known.gap(name, method).word for name in others]
    apart = any(word not in ("equal", "unknown") for name, word in zip(others, words, strict=True) if name in ties)
    first, last = 1 + words.count("above"), 1 + len(others) - words.count("below")
    placed = bool(others) and theirs <= first and last <= theirs + len(ties) and not apart
    held = (sign is True) + placed
    against = sign is False or apart or last < theirs or theirs + len(ties) < first
    outcome: Outcome = "agrees" if held == 2 else "partly" if held else "disagrees" if against else "not comparable"
    ours_at = f"{first} to {last}" if first < last else str(first)
    place = (
        f"rank {ours_at} of {1 + len(others)}, the paper's {theirs}" if others else "no other method to rank it with"
    )
    instead = f" in place of {stands_for}" if stands_for else ""
    reason = f"Reduced scale ({known.words}{instead}): sign and rank of the gap, {wanted} in the paper, not its level."
    if wanted == "equal":
        outcome = "not comparable"
        reason = f"Reduced scale ({known.words}{instead}). Not decided: {UNCONVERGED}."
    elif outcome == "not comparable":
        reason += " Not decided: the noise of seeds exceeds the gap."
    return Verdict(claim, outcome, f"gap {ours}, {ours.word}; {place}", "measured", "", reason, COMMAND, COST)
