"""MiCRO's error, density, threshold and accuracy in long runs: Figs. 2, 4, 5, 7 and 8."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise, repeat
from math import inf
from statistics import fmean, pstdev

from experiments.common.claims.verdicts import Outcome, Verdict
from experiments.common.evaluation.artifacts import Answer, Judged, both, long_figure
from experiments.common.evaluation.configured import conf
from experiments.common.evaluation.gaps import (
    COMMAND,
    COST,
    LONG,
    NO_ROW,
    SCALE,
    SENT_MORE,
    UNCONVERGED,
    Compared,
    Missing,
    Task,
    gaps,
    judged_order,
    lacking,
    no_row,
    tasks,
    there_is,
    usual,
)
from experiments.common.evaluation.micro_steps import MODELS, iteration_s, timed
from experiments.common.evaluation.quality_panels import Curves, Panel, Quality, origin, points
from experiments.common.evaluation.row_steps import SORTS_NOTHING, values_by_calibration
from experiments.common.figures.auto import AUTO, COLOUR
from experiments.common.figures.figure import Sketch
from experiments.common.figures.style import Axes, Table
from experiments.common.validation.published_steps import Steps, number
from ssfx.core.lazy import numpy as np
from ssfx.core.rows import Row
from ssfx.lab.results.comparisons import sent_mark

METHODS = {"topk": "Top-k", "cltk": "CLT-k", "hard_threshold": "hard threshold", "micro": "MiCRO"}
COLOURS = {"Top-k": "#b8860b", "CLT-k": "#3f7f4f", "hard threshold": "#d55e00", "MiCRO": "#5b2a86"}
GROUP = 4
"""Workers of the runs that are compared; those of other numbers are for Fig. 7."""
DENSITY = 0.01
"""Of the paper's two, the one of our runs."""
NETWORK = "vgg_small_cifar10"
"""Of the networks with long runs, the one on which all four sparsifiers ran: convolutions, as the paper's."""
ONE = f"one network and density of the paper's 12 settings, {GROUP} workers, {SCALE}"


def method(row: Row) -> str:
    """Return the sparsifier of a long run as the paper calls it, "" for other runs."""
    case = row.case
    here = case.experiment == LONG and case.model == NETWORK and case.density == DENSITY and usual(row)
    return METHODS.get(case.scheme, "") if here else ""


def runs(rows: Iterable[Row], workers: int = GROUP) -> dict[str, list[Row]]:
    """Return the long runs on so many workers by sparsifier, alike in all else, with the network's usual optimizer."""
    task = _task(rows, workers)
    return {name: list(task.methods[name]) for name in COLOURS if name in task.methods} if task else {}


def late(rows: Sequence[Row]) -> float | None:
    """Return the density that all ranks sent over the one that was set, mean of the second half; None if unknown."""
    found = [(half, row.case.density) for row in rows if (half := halves(row, "union_density")[1]) and row.case.density]
    return fmean(fmean(half) / density for half, density in found) if found else None


def scaled(row: Row) -> tuple[list[float], list[float], list[float]]:
    """Return steps, thresholds, and errors times the ratio of their sums; empty without both."""
    found = points(row, "step", "threshold", "error_norm")
    if not found:
        return [], [], []
    steps, thresholds, errors = (list(column) for column in zip(*found, strict=True))
    ratio = sum(thresholds) / sum(errors) if sum(errors) else 0.0
    return steps, thresholds, [ratio * error for error in errors]


def follows(row: Row) -> float:
    """Return the rank correlation of threshold and error over the steps, in [-1, 1]."""
    _, thresholds, errors = scaled(row)
    first, second = (np.argsort(np.argsort(values)).astype(np.float64) for values in (thresholds, errors))
    if len(thresholds) < 3:
        return 0.0
    return float(np.asarray(np.corrcoef(np.stack([first, second])))[0, 1])


def steps_to_common(methods: Mapping[str, Sequence[Row]]) -> dict[str, list[float]]:
    """Return, by method and run, the steps until the highest accuracy that every one of the runs reached."""
    best = {name: [_best_so_far(row) for row in own] for name, own in methods.items()}
    runs = [run for own in best.values() for run in own]
    if not runs or not all(runs):
        return {}
    level = min(run[-1][1] for run in runs)
    return {name: [next(step for step, top in run if top >= level) for run in own] for name, own in best.items()}


def judged_times(
    claim: str, pairs: Sequence[tuple[Sequence[float], Sequence[float]]], calibration: str, missing: Missing = ()
) -> Verdict:
    """Return the verdict on an order of times: in every pair those of the first, a time a seed, are the shorter ones.

    A pair is in order, or contradicts it, where all seeds are; where they mix, it is open. One that contradicts decides
    alone; where methods are `missing`, nothing else does.
    """
    states = [max(a) < min(b) if max(a) < min(b) or min(a) > max(b) else None for a, b in pairs]
    right, wrong = states.count(True), states.count(False)
    outcome: Outcome = (
        "disagrees"
        if wrong
        else "not comparable"
        if missing
        else ("agrees" if right == len(states) else "partly" if right else "not comparable")
    )
    text = f"shorter for all seeds in {right} of {len(states)} pairs, longer for all in {wrong}"
    reason = f"Steps of long runs ({ONE}) times simulated steps of the paper's networks on its cluster."
    if missing:
        reason += f" {'Left out' if wrong else 'Not decided'}: {lacking(missing)}."
    return Verdict(claim, outcome, text, "simulated", calibration, reason)


def _best_so_far(row: Row) -> list[tuple[float, float]]:
    found = points(row, "step", "top1")
    return list(zip((step for step, _ in found), accumulate((top for _, top in found), max), strict=True))


WITH_TIMES = {"experiment": (LONG, "micro_clusters").__contains__}
"""Needs of figures that also take simulated steps."""


def halves(row: Row, column: str) -> tuple[list[float], list[float]]:
    """Return the values of a column of a row's curve in both halves of training."""
    found = [value for (value,) in points(row, column)]
    return found[: len(found) // 2], found[len(found) // 2 :]


def _tasks(rows: Iterable[Row], label: Callable[[Row], str]) -> list[Task]:
    return tasks([row for row in rows if row.case.experiment == LONG], label, across_ranks=label is workers)


def _task(rows: Iterable[Row], workers: int = GROUP) -> Task | None:
    """Return the runs on so many workers that are compared, those of scheme=auto among them."""
    found = _tasks([row for row in rows if row.case.world_size == workers], shown)
    return next((one for one in found if set(METHODS.values()) & set(one.methods)), None)


# ---- Fig. 2: error ---------------------------------------------------------------------------------------------------

TWO = ("Top-k", "hard threshold")
MANY = 16
"""Workers of the paper's figure."""
STEADY = 0.1
"""Standard deviation of an error over its mean, in the second half of training, up to which it counts as steady."""


def _fig2_answers(rows: list[Row]) -> dict[str, Answer]:
    """Return in how many steps the error of hard threshold is lower, and whether it is steady in the long runs.

    On MANY workers, as in the paper, fewer steps were run: they are asked for the former alone.
    """
    own, many = runs(rows), runs(rows, MANY)
    if not (lower := _lower(own)):
        return {"micro.fig2.order": no_row("micro.fig2.order", [name for name in TWO if name not in own])}
    found: dict[str, Answer] = {}
    text = f"lower in {100 * lower:.0f} % of the measured steps"
    if of_many := _lower(many):
        found["micro.fig2.gpus"] = MANY
        text += f", on {MANY} workers in {100 * of_many:.0f} %"
        lower = min(lower, of_many)
    varies = max(pstdev(half) / fmean(half) for _, half in map(halves, own["hard threshold"], repeat("error_norm")))
    text += f"; varies by {100 * varies:.0f} % in the second half"
    return {**found, "micro.fig2.order": (both(lower > 0.5, varies <= STEADY), text)}


def _lower(own: Mapping[str, Sequence[Row]]) -> float | None:
    """Return the share of measured steps in which the error of hard threshold is the lower one; None without any."""
    first, second = ([row.curve.get("error_norm", []) for row in own.get(name, ())] for name in TWO)
    both_ran = (pair for a, b in zip(second, first, strict=False) for pair in zip(a, b, strict=False))
    pairs = [(a, b) for a, b in both_ran if a is not None and b is not None]
    return sum(a < b for a, b in pairs) / len(pairs) if pairs else None


FIG2 = long_figure(
    "micro.fig2",
    "Error over steps of Top-k and hard threshold",
    Curves(runs, {name: COLOURS[name] for name in TWO}, "error_norm", "mean error norm"),
    Judged(_fig2_answers, cost=COST, source="measured", why=ONE),
)


# ---- Fig. 4: accuracy over steps; over time with simulated steps -----------------------------------------------------

ORDERS = {
    "micro.fig4.fastest": [("MiCRO", name) for name in COLOURS if name != "MiCRO"],
    "micro.fig4.slowest": [(name, "CLT-k") for name in COLOURS if name != "CLT-k"],
    "micro.fig4.hard": [("MiCRO", "hard threshold")],
}
"""Of two sparsifiers the one that the paper has first at its accuracy."""
SORTED = dict.fromkeys(("micro.fig4.fastest", "micro.fig4.slowest"), SORTS_NOTHING)
"""Orders of times of which some are long in the paper because gradients are sorted."""


def shown(row: Row) -> str:
    """Return the sparsifier of a row, or scheme=auto."""
    return AUTO if (row.case.scheme, row.case.model) == (AUTO, NETWORK) else method(row)


def _fig4(rows: list[Row]) -> list[Panel]:
    """Return accuracy over steps, and at the end over that of MiCRO; the paper's is over time on its own GPUs."""
    task = _task(rows)
    return [Panel(task.model, task, {**COLOURS, AUTO: COLOUR}, "MiCRO")] if task else []


def _fig4_answers(rows: list[Row]) -> dict[str, Answer]:
    """Return whether Top-k leads CLT-k, who is there first by simulated steps, and how far apart runs end.

    Each claim rests on the pairs that it names. That all end alike is said of networks that converged.
    """
    sweep = conf("experiment", "micro_clusters")["experiment"]["sweep"]
    task, own = _task(rows), runs(rows)
    there = [task] if task else []
    ends = gaps(there, *((name, "MiCRO", "equal") for name in COLOURS if name != "MiCRO"))
    text = "; ".join(f"{what} {gap}" for what, gap, _ in ends)
    lead = gaps(there, ("Top-k", "CLT-k", "not below"))
    two = {name: there_is(there, name) for name in ("Top-k", "CLT-k") if not task or not task.knows(name)}
    alike, topk_cltk = "micro.fig4.accuracy", "micro.fig4.topk_cltk"
    return {
        "micro.fig4.settings": 2 * len(sweep["workload"]) * len(sweep["density"]),
        alike: Verdict(alike, "not comparable", text, "measured", "", UNCONVERGED, COMMAND, COST)
        if ends
        else no_row(alike, [name for name in COLOURS if name not in own]),
        topk_cltk: judged_order(topk_cltk, lead, task.words if task else "", two),
        **{claim: _fig4_times(claim, order, rows, own) for claim, order in ORDERS.items()},
    }


def _fig4_times(
    claim: str, order: Sequence[tuple[str, str]], rows: list[Row], own: Mapping[str, Sequence[Row]]
) -> list[Verdict]:
    """Return a verdict for each calibration on which of two sparsifiers is first at what both reach.

    Steps of runs that sent far more than was set are none that the simulated step takes.
    """
    named = {name for pair in order for name in pair}
    missing = {name: NO_ROW for name in COLOURS if name in named and name not in own}
    if more := {name: SENT_MORE for name in own if name in named and sent_mark(own[name], ())}:
        return [no_row(claim, more)]
    counts = [steps_to_common({a: own[a], b: own[b]}) for a, b in order if a in own and b in own]
    if not any(counts):
        return [no_row(claim, missing)]
    every = values_by_calibration(
        rows, lambda steps: [tuple(_times(steps, model, pair).values()) for model in MODELS for pair in counts if pair]
    )
    return [judged_times(claim, pairs, calibration, missing) for calibration, pairs in every.items()]  # type: ignore[arg-type]


def _times(steps: Steps, model: str, counts: dict[str, list[float]]) -> dict[str, list[float]]:
    """Return seconds to the common accuracy by sparsifier, one of the paper's networks lent its step."""
    names = {label: scheme for scheme, label in METHODS.items()}
    return {
        name: [count * iteration_s(steps, names[name], model, DENSITY) for count in own] for name, own in counts.items()
    }


FIG4 = long_figure(
    "micro.fig4",
    "Accuracy of four sparsifiers",
    Quality(_fig4),
    Judged(_fig4_answers, cost=COST, not_comparable=SORTED),
    needs=WITH_TIMES,
)


# ---- Fig. 5: density -------------------------------------------------------------------------------------------------

BAND = 0.1
"""Relative difference within which a density counts as the one that was set."""
TRAINING_IMAGES, PAPER_WORKERS = 50_000, 16
"""Of CIFAR-10 and CIFAR-100, and of the paper."""


def _fig5_answers(rows: list[Row]) -> dict[str, Answer]:
    """Return densities over the one that was set, in the second half of training."""
    batch, epochs = conf("workload", "resnet18_cifar10")["batch_size"], int(number("micro.setup.decay_epoch"))
    images, own = TRAINING_IMAGES // PAPER_WORKERS, runs(rows)
    first, last = epochs * (images // batch), epochs * -(-images // batch)
    found: dict[str, Answer] = {
        "micro.iii.hard_fixed": 1.0,
        "micro.fig5.drop": (first <= number("micro.fig5.drop") <= last, f"{first:,} to {last:,} iterations"),
    }
    for claim, name, low, high in (
        ("micro.fig5.micro", "MiCRO", 1 - BAND, 1 + BAND),
        ("micro.fig5.topk", "Top-k", 1 + 1e-9, float(GROUP)),  # the workers' number bounds the union
        ("micro.fig5.hard", "hard threshold", 1 + BAND, inf),
    ):
        ratio = late(own.get(name, ()))
        if ratio is None:
            found[claim] = no_row(claim, [name])
            continue
        found[claim] = low <= ratio <= high, f"{ratio:.2f}x of what was set"
        if name == "hard threshold":  # it is to rise, too, in every run
            rising = [fmean(early) < fmean(end) for early, end in map(halves, own[name], repeat("union_density"))]
            text = f"{ratio:.2f}x of what was set; rises in {sum(rising)} of {len(rising)} runs"
            found[claim] = both(ratio > low, all(rising)), text
    return found


FIG5 = long_figure(
    "micro.fig5",
    "Density over steps of four sparsifiers",
    Curves(runs, COLOURS, "union_density", "density sent by all", set_to=DENSITY),
    Judged(_fig5_answers, cost=COST, source="measured", why=ONE),
)


# ---- Fig. 7: numbers of workers --------------------------------------------------------------------------------------

WORKERS = {2: "2 workers", 4: "4 workers", 8: "8 workers"}
SHADES = {"2 workers": "#c6b2dd", "4 workers": "#9a6fc4", "8 workers": "#5b2a86"}
TIMED = "resnet18_cifar10"
"""The paper's network whose step was simulated on each number of workers."""


def workers(row: Row) -> str:
    """Return the number of workers of a long run of MiCRO, in words, "" for other runs."""
    return WORKERS.get(row.case.world_size, "") if method(row) == "MiCRO" else ""


def _fig7_verdicts(rows: list[Row]) -> list[Verdict]:
    """Return whether all numbers of workers end alike, and whether more of them are there sooner by simulated steps."""
    every = _tasks(rows, workers)
    task = every[0] if every else None
    missing = [f"MiCRO on {name}" for name in SHADES if not task or name not in task.methods]
    if task is None or missing:
        return [no_row(claim, missing) for claim in ("micro.fig7.accuracy", "micro.fig7.speed")]
    first = next(iter(SHADES))
    pairs: list[Compared] = [
        (f"{name} over {first}", task.gap(name, first), "equal") for name in SHADES if name != first
    ]
    found = [judged_order("micro.fig7.accuracy", pairs, task.words)]
    counts = steps_to_common(task.methods)
    step_times = values_by_calibration(
        rows,
        lambda steps: {
            name: steps.step(*timed("micro", TIMED, DENSITY, count)).iteration_s for count, name in WORKERS.items()
        },
    )
    for calibration, step_s in step_times.items():
        times = {name: [count * step_s[name] for count in counts[name]] for name in SHADES}
        ordered = [(times[more], times[fewer]) for fewer, more in pairwise(SHADES)]
        found.append(judged_times("micro.fig7.speed", ordered, calibration))
    return found


FIG7 = long_figure(
    "micro.fig7",
    "Accuracy of MiCRO by number of workers",
    Quality(lambda rows: [Panel(one.model, one, SHADES, "2 workers") for one in _tasks(rows, workers)[:1]]),
    Judged(_fig7_verdicts, cost=COST),
    needs=WITH_TIMES,
)


# ---- Fig. 8: threshold and error -------------------------------------------------------------------------------------


def thresholds(rows: list[Row]) -> list[Row]:
    """Return the long runs of MiCRO that recorded thresholds and errors."""
    return [row for row in runs(rows).get("MiCRO", ()) if scaled(row)[0]]


def _fig8(axis: Axes, rows: list[Row]) -> Table:
    """Draw the threshold over steps beside the error, rescaled by the ratio of their sums as in the paper."""
    table = []
    for seed, row in enumerate(rows):
        steps, threshold, error = scaled(row)
        axis.plot(steps, threshold, color="#5b2a86", linewidth=1.1, label="threshold" if seed == 0 else None)
        axis.plot(steps, error, color="#d55e00", linewidth=0.9, label="error, rescaled" if seed == 0 else None)
        lines = zip(steps, threshold, error, strict=True)
        table += [{"seed": row.case.seed, "step": step, "threshold": a, "scaled_error": b} for step, a, b in lines]
    axis.legend()
    return table


def _fig8_answers(rows: list[Row]) -> dict[str, Answer]:
    """Return the correlation of the ranks of threshold and error; one setting is at most a part of every one."""
    ranks = [follows(row) for row in thresholds(rows)]
    if not ranks:
        return {claim: no_row(claim, ["MiCRO"]) for claim in ("micro.fig8.scale", "micro.fig8.track")}
    text = f"rank correlation {min(ranks):.2f} to {max(ranks):.2f}"
    return {
        "micro.fig8.scale": ("agrees", "applied in the figure"),
        "micro.fig8.track": ("partly" if min(ranks) > 0 else False, text),
    }


FIG8 = long_figure(
    "micro.fig8",
    "Threshold and scaled error of MiCRO",
    Sketch(
        _fig8,
        [("{}", "step", "threshold")],
        lambda rows: origin(rows, "a line for each of"),
        (1.4, 2.5),
        thresholds,
        needs_rows=True,
    ),
    Judged(_fig8_answers, cost=COST, source="measured", why=ONE),
)
