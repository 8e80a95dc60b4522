"""MiCRO's error, density, threshold and accuracy in long runs: Figs. 2, 4, 5, 7 and 8."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean, pstdev

from experiments.common.claims.verdicts import Outcome, Source, Verdict
from experiments.common.evaluation.artifacts import Judged, long_figure
from experiments.common.evaluation.configured import conf
from experiments.common.evaluation.gaps import (
    COMMAND,
    COST,
    LONG,
    SCALE,
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
from experiments.common.evaluation.judging import absent, held, says
from experiments.common.evaluation.micro_steps import MODELS, SORTS_NOTHING, iteration_s, timed
from experiments.common.evaluation.quality_panels import Curves, Panel, Quality, origin, points
from experiments.common.evaluation.row_steps import values_by_calibration
from experiments.common.figures.auto import AUTO, COLOUR
from experiments.common.figures.figure import Figure, say_origin
from experiments.common.figures.style import COLUMN_IN, Picture, caption_text, plt
from experiments.common.validation.published_steps import Steps, number
from ssfx.core.lazy import numpy as np
from ssfx.core.rows import Row

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


def runs(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Return the long runs on GROUP workers by sparsifier, alike in all else and with the network's usual optimizer."""
    task = _task(rows)
    return {name: list(task.methods[name]) for name in COLOURS if name in task.methods} if task else {}


def late(rows: Sequence[Row]) -> float | None:
    """Return the density that all ranks sent over the one that was set, mean of the second half; None if unknown."""
    ratios = []
    for row in rows:
        found = recorded(row, "union_density")
        if found and row.case.density:
            ratios.append(fmean(found[len(found) // 2 :]) / row.case.density)
    return fmean(ratios) if ratios else None


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
    outcome: Outcome = "disagrees" if wrong else "not comparable" if missing else (
        "agrees" if right == len(states) else "partly" if right else "not comparable")  # fmt: skip
    text = f"shorter for all seeds in {right} of {len(states)} pairs, longer for all in {wrong}"
    reason = f"Steps of long runs ({ONE}) times simulated steps of the paper's networks on its cluster."
    if missing:
        reason += f" {'Left out' if wrong else 'Not decided'}: {lacking(missing)}."
    return Verdict(claim, outcome, text, "simulated", calibration, reason)


def _best_so_far(row: Row) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for step, value in points(row, "step", "top1"):
        found.append((step, max(value, found[-1][1] if found else value)))
    return found


WITH_TIMES = {"experiment": (LONG, "micro_clusters").__contains__}
"""Needs of figures that also take simulated steps."""


def recorded(row: Row, column: str) -> list[float]:
    """Return the values of a column of a row's curve."""
    return [value for (value,) in points(row, column)]


def _tasks(rows: Iterable[Row], label: Callable[[Row], str]) -> list[Task]:
    return tasks([row for row in rows if row.case.experiment == LONG], label, across_ranks=label is workers)


def _task(rows: Iterable[Row]) -> Task | None:
    """Return the runs on GROUP workers that are compared, those of scheme=auto among them."""
    found = _tasks([row for row in rows if row.case.world_size == GROUP], shown)
    return next((one for one in found if set(METHODS.values()) & set(one.methods)), None)


# ---- Fig. 2: error ---------------------------------------------------------------------------------------------------

TWO = ("Top-k", "hard threshold")
STEADY = 0.1
"""Standard deviation of an error over its mean, in the second half of training, up to which it counts as steady."""


def _fig2_verdicts(rows: list[Row]) -> list[Verdict]:
    """Return in how many steps the error of hard threshold is lower, and whether it is steady."""
    found = [absent("micro.fig2.gpus", f"ours ran on {GROUP} CPU workers")]
    own = runs(rows)
    pairs = [
        (a, b)
        for one, other in zip(own.get("hard threshold", ()), own.get("Top-k", ()), strict=False)
        for a, b in zip(one.curve.get("error_norm", []), other.curve.get("error_norm", []), strict=False)
        if a is not None and b is not None
    ]
    if not pairs:
        return [*found, no_row("micro.fig2.order", [name for name in TWO if name not in own])]
    lower = sum(a < b for a, b in pairs) / len(pairs)
    varies = max(_varies(row) for row in own["hard threshold"])
    text = f"lower in {100 * lower:.0f} % of the measured steps; varies by {100 * varies:.0f} % in the second half"
    below, steady = lower > 0.5, varies <= STEADY
    outcome: Outcome = "agrees" if below and steady else "partly" if below or steady else "disagrees"
    return [*found, says("micro.fig2.order", outcome, text, ONE, source="measured")]


def _varies(row: Row) -> float:
    errors = recorded(row, "error_norm")
    half = errors[len(errors) // 2 :]
    return pstdev(half) / fmean(half)


FIG2 = long_figure(
    "micro.fig2", "Error over steps of Top-k and hard threshold",
    Curves(runs, {name: COLOURS[name] for name in TWO}, "error_norm", "mean error norm"),
    Judged(_fig2_verdicts, cost=COST),
)  # fmt: skip


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


def _fig4_verdicts(rows: list[Row]) -> list[Verdict]:
    """Return whether Top-k leads CLT-k, who is there first by simulated steps, and how far apart runs end.

    Each claim rests on the pairs that it names. That all end alike is said of networks that converged.
    """
    sweep = conf("experiment", "micro_clusters")["experiment"]["sweep"]
    task, own = _task(rows), runs(rows)
    there = [task] if task else []
    words = task.words if task else ""
    ends = gaps(there, *((name, "MiCRO", "equal") for name in COLOURS if name != "MiCRO"))
    text = "; ".join(f"{what} {gap}" for what, gap, _ in ends)
    lead = gaps(there, ("Top-k", "CLT-k", "not below"))
    two = {name: there_is(there, name) for name in ("Top-k", "CLT-k") if not task or not task.knows(name)}
    alike, topk_cltk = "micro.fig4.accuracy", "micro.fig4.topk_cltk"
    return [
        held("micro.fig4.settings", 2 * len(sweep["workload"]) * len(sweep["density"]), tolerance=0.0,
             reason="as many settings with both data sets; a simulated step does not depend on the data set"),
        Verdict(alike, "not comparable", text, "measured", "", UNCONVERGED, COMMAND, COST) if ends
        else no_row(alike, [name for name in COLOURS if name not in own]),
        judged_order(topk_cltk, lead, words, two),
        *(verdict for claim, order in ORDERS.items() for verdict in _fig4_times(claim, order, rows, own)),
    ]  # fmt: skip


def _fig4_times(
    claim: str, order: Sequence[tuple[str, str]], rows: list[Row], own: Mapping[str, Sequence[Row]]
) -> list[Verdict]:
    """Return a verdict for each calibration on which of two sparsifiers is first at what both reach."""
    missing = [name for name in COLOURS if name not in own and any(name in pair for pair in order)]
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
    "micro.fig4", "Accuracy of four sparsifiers", Quality(_fig4),
    Judged(_fig4_verdicts, cost=COST, not_comparable=SORTED), needs=WITH_TIMES,
)  # fmt: skip


# ---- Fig. 5: density -------------------------------------------------------------------------------------------------

BAND = 0.1
"""Relative difference within which a density counts as the one that was set."""
TRAINING_IMAGES, PAPER_WORKERS = 50_000, 16
"""Of CIFAR-10 and CIFAR-100, and of the paper."""


def _fig5_verdicts(rows: list[Row]) -> list[Verdict]:
    """Return densities over the one that was set, in the second half of training."""
    batch, epochs = conf("workload", "resnet18_cifar10")["batch_size"], int(number("micro.setup.decay_epoch"))
    images = TRAINING_IMAGES // PAPER_WORKERS
    first, last = epochs * (images // batch), epochs * -(-images // batch)
    found = [
        held("micro.iii.hard_fixed", 1.0, tolerance=0.0, reason="the threshold is an option of the compressor",
             source="restated"),
        says("micro.fig5.drop", first <= number("micro.fig5.drop") <= last, f"{first:,} to {last:,} iterations",
             "150 epochs of 97 or 98 iterations: when the paper's learning rate decays (MI-04)", source="restated"),
    ]  # fmt: skip
    own = runs(rows)
    for claim, name, low, high in (
        ("micro.fig5.micro", "MiCRO", 1 - BAND, 1 + BAND),
        ("micro.fig5.topk", "Top-k", 1 + 1e-9, float(GROUP)),
    ):
        ratio = late(own.get(name, ()))
        if ratio is None:
            found.append(no_row(claim, [name]))
        else:
            text = f"{ratio:.2f}x of what was set"
            by_rule: Source = "restated" if name == "Top-k" else "measured"  # the workers' number bounds the union
            found.append(says(claim, low <= ratio <= high, text, ONE, source=by_rule))
    hard = own.get("hard threshold", [])
    ratio = late(hard)
    return [*found, no_row("micro.fig5.hard", ["hard threshold"]) if ratio is None else _hard(hard, ratio)]


def _hard(rows: list[Row], ratio: float) -> Verdict:
    """Return whether the density of a hard threshold is far above the one that was set, and rises in every run."""
    halves = []
    for row in rows:
        density = recorded(row, "union_density")
        halves.append((fmean(density[: len(density) // 2]), fmean(density[len(density) // 2 :])))
    rising = sum(early < end for early, end in halves)
    above, always = ratio > 1 + BAND, rising == len(halves)
    outcome: Outcome = "agrees" if above and always else "partly" if above or always else "disagrees"
    text = f"{ratio:.2f}x of what was set; rises in {rising} of {len(halves)} runs"
    return says("micro.fig5.hard", outcome, text, ONE, source="measured")


FIG5 = long_figure(
    "micro.fig5", "Density over steps of four sparsifiers",
    Curves(runs, COLOURS, "union_density", "density sent by all", set_to=DENSITY),
    Judged(_fig5_verdicts, cost=COST),
)  # fmt: skip


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
    "micro.fig7", "Accuracy of MiCRO by number of workers",
    Quality(lambda rows: [Panel(one.model, one, SHADES, "2 workers") for one in _tasks(rows, workers)[:1]]),
    Judged(_fig7_verdicts, cost=COST),
    needs=WITH_TIMES,
)  # fmt: skip


# ---- Fig. 8: threshold and error -------------------------------------------------------------------------------------


def thresholds(rows: list[Row]) -> list[Row]:
    """Return the long runs of MiCRO that recorded thresholds and errors."""
    return [row for row in runs(rows).get("MiCRO", ()) if scaled(row)[0]]


def _fig8(figure: Figure, rows: list[Row]) -> Picture | None:
    """Return the threshold over steps beside the error, rescaled by the ratio of their sums as in the paper."""
    rows = thresholds(rows)
    if not rows:
        return None
    table = []
    canvas, axis = plt.subplots(figsize=(1.4 * COLUMN_IN, 2.5), layout="constrained")
    for seed, row in enumerate(rows):
        steps, threshold, error = scaled(row)
        axis.plot(steps, threshold, color="#5b2a86", linewidth=1.1, label="threshold" if seed == 0 else None)
        axis.plot(steps, error, color="#d55e00", linewidth=0.9, label="error, rescaled" if seed == 0 else None)
        table += [
            {"seed": row.case.seed, "step": step, "threshold": a, "scaled_error": b}
            for step, a, b in zip(steps, threshold, error, strict=True)
        ]
    axis.set(xlabel="step", ylabel="threshold")
    axis.set_title(rows[0].case.model, loc="left", fontweight="bold")
    axis.legend()
    axis.grid()
    say_origin(canvas, caption_text([origin(rows, "a line for each of")], canvas.get_figwidth()))
    return canvas, table, rows


def _fig8_verdicts(rows: list[Row]) -> list[Verdict]:
    """Return the correlation of the ranks of threshold and error; one setting is at most a part of every one."""
    own = thresholds(rows)
    if not own:
        return [no_row(claim, ["MiCRO"]) for claim in ("micro.fig8.scale", "micro.fig8.track")]
    scale = "the rescaling of the figure is done as the text says: sum of thresholds over sum of errors"
    ranks = [follows(row) for row in own]
    text = f"rank correlation {min(ranks):.2f} to {max(ranks):.2f}"
    return [
        says("micro.fig8.scale", "agrees", "applied in the figure", scale, source="restated"),
        says("micro.fig8.track", "partly" if min(ranks) > 0 else False, text, ONE, source="measured"),
    ]


FIG8 = long_figure("micro.fig8", "Threshold and scaled error of MiCRO", _fig8, Judged(_fig8_verdicts, cost=COST))
