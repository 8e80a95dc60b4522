"""S2 Reducer's times and quality: Figs. 3 to 8, from simulated rows, long runs and formulas of collectives."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from experiments.common.claims.ledger import claims_by_id
from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.artifacts import Judged, about
from experiments.common.evaluation.configured import cluster
from experiments.common.evaluation.gaps import (
    CEILING,
    COMMAND,
    LONG,
    NO_ROW,
    ONE_SEED,
    SENT_MORE,
    UNSHARED,
    Compared,
    Missing,
    Task,
    gaps,
    judged_order,
    task_of,
    tasks,
    there_is,
)
from experiments.common.evaluation.judging import held
from experiments.common.evaluation.quality_panels import Panel, Quality
from experiments.common.evaluation.row_steps import (
    judge_predictions,
    prediction_bars,
    simulated_rows,
    values_by_calibration,
)
from experiments.common.evaluation.step_plots import PAPER, Bar, Bars, Panels
from experiments.common.figures.figure import Figure, say_origin, simulated
from experiments.common.figures.style import COLUMN_IN, Picture, plt
from experiments.common.validation.published_s2reducer import gnmt_ratios, ratios, timed
from experiments.common.validation.published_steps import PaperStep, Steps, method, number
from experiments.s2reducer.figures.computed import SHARED
from ssfx.collectives.pairs import PAIR_BYTES
from ssfx.core.rows import Row
from ssfx.perf_model.build_timing_model import system_on
from ssfx.perf_model.operator_counts import model_work

LABELS = {"s2reducer": "S2 Reducer", "allgather": "AllGather", "sparcml": "SparCML", "omnireduce": "OmniReduce"}
COLOURS = {"s2reducer": "#0072b2", "allgather": "#d55e00", "sparcml": "#8e7cc3", "omnireduce": "#787878"}
LOSSLESS = "AllGather"
"""Of the same blocks: what a sketch estimates, it sums exactly."""
RATIO = 0.5
"""Lambda of scheme s2reducer, which a case does not write down."""


def bars(rows: Sequence[Row], part: Callable[[PaperStep], float]) -> list[Bar]:
    """Return a bar for each exchange: a part of its step, from the rows of each calibration."""
    return [
        Bar(label, COLOURS[name], values_by_calibration(rows, lambda steps, name=name: part(steps.step(*timed(name)))))  # type: ignore[misc]
        for name, label in LABELS.items()
    ]


def sketched(row: Row) -> str:
    """Return how a run at the paper's rate summed its blocks: "lambda = 0.5", LOSSLESS, or "" for other runs."""
    case = row.case
    options = dict(case.scheme_options)
    ratio = float(options.pop("ratio", RATIO))
    if case.density != number("s2reducer.setup.rate") or options:
        return ""
    if case.scheme == "s2reducer":
        return f"lambda = {ratio:g}"
    return LOSSLESS if (case.scheme, case.compressor) == ("fused_all", "block_topk") else ""


def communication_panels(rows: Sequence[Row]) -> list[Bars]:
    """Return communication times, and what S2 Reducer leaves of the others' with the paper's marks."""
    left = [one for one in ratios() if "communication" in one.panel]
    names = {f"of {name}": colour for name, colour in COLOURS.items()}
    return [
        Bars("block-sparse ResNet-50", bars(rows, lambda step: step.comm_s), "communication (s)"),
        prediction_bars(rows, left, "what S2 Reducer leaves of it", names),
    ]


def _long(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row.case.experiment == LONG]


# ---- Fig. 3: speed of training ---------------------------------------------------------------------------------------

SKETCH = f"lambda = {RATIO:g}"
TASKS = {"vgg": "ResNet-50", "lstm": "LSTM and GNMT-8"}
"""Our networks by a word in their names, and the paper's that they stand for."""
PARITY = {
    "s2reducer.fig3.d.accuracy": ("vgg",),
    "s2reducer.fig3.parity": ("lstm",),
    "s2reducer.headline.accuracy": ("vgg", "lstm"),
}
"""Claims of equal quality, and our networks that speak to them."""


def _fig3(rows: list[Row]) -> list[Bars]:
    """Return iteration times of panel (d), and the speedups that the text prints of it."""
    gains = [one for one in ratios() if "gain" in one.panel]
    names = {f"over {name}": colour for name, colour in COLOURS.items()}
    return [
        Bars("(d) block-sparse ResNet-50, 1 Gb/s", bars(rows, lambda step: step.iteration_s), "iteration (s)"),
        prediction_bars(rows, gains, "(d) gain of S2 Reducer", names),
    ]


def _fig3_verdicts(rows: list[Row]) -> list[Verdict]:
    """Return verdicts on the speedups of panels (d) and (f), and on equal quality."""
    own = [one for one in (*ratios(), *gnmt_ratios()) if "gain" in one.panel]
    claim = claims_by_id()["s2reducer.fig3.a.lstm.sparcml"]
    return [
        *_explained(judge_predictions(rows, own)),
        held(claim.id, (1.0, _most_over_sparcml()), reason=claim.why),
        *(_parity(claim, words, rows) for claim, words in PARITY.items()),
    ]


def _most_over_sparcml() -> float:
    """Return what the LSTM gains over SparCML at most, if S2 Reducer's exchange of embeddings took no time at all.

    Four devices of a node share its link. Of four exchanges with a partner two leave the node; each carries at most all
    rows that the 16 workers share, 8 bytes an element.
    """
    where = cluster(CLUSTER)
    width = next(spec.shape[1] for spec in model_work("lstm_650").tensors if spec.name == "embedding.weight")
    rows_bytes = SHARED * width * PAIR_BYTES
    sparse_s = 2 * where.devices_per_node * rows_bytes / (where.inter.gbps * 1e9 / 8)
    return 1 + sparse_s / seconds("all_reduce", number("s2reducer.table1.lstm.dense"))


OVERLAP = "the range is from ranks that all send the same blocks to ranks that choose alone: no overlap is printed"
"""Said of OmniReduce's time, which depends on how many blocks some rank sends."""
SIZE = "GNMT-8 of the code that the paper names, whose dense part is 2.6 times what the paper prints (S2-05)"


def _explained(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return the verdicts with what the paper leaves open of their method and network."""
    found = []
    for one in verdicts:
        claim = claims_by_id()[one.claim]
        notes = (
            one.reason,
            OVERLAP if claim.baseline == "omnireduce" else "",
            SIZE if str(claim.conditions.get("model")).startswith("GNMT-8") else "",
        )
        found.append(replace(one, reason="; ".join(filter(None, notes))))
    return found


def _parity(claim: str, words: Sequence[str], rows: list[Row]) -> Verdict:
    """Return whether the sketch ends where lossless sums do, on every network that is asked for."""
    every = tasks(_long(rows), sketched)
    known = [task for word in words if (task := task_of(every, word)) and task.knows(SKETCH, LOSSLESS)]
    missing = {
        f"S2 Reducer and {LOSSLESS} in place of {TASKS[word]}": _there_are(every, word)
        for word in words
        if not any(word in task.model for task in known)
    }
    pairs: list[Compared] = [
        (f"{task.model}: S2 Reducer over lossless", task.gap(SKETCH, LOSSLESS), "equal") for task in known
    ]
    return judged_order(claim, pairs, known, missing)


def _there_are(every: Sequence[Task], word: str) -> str:
    """Return what keeps sketch and lossless sums from being compared on a network, of the one with fewer runs."""
    own = [task for task in every if word in task.model]
    states = {there_is(own, name) for name in (SKETCH, LOSSLESS)}
    return next(state for state in (NO_ROW, SENT_MORE, CEILING, ONE_SEED, UNSHARED) if state in states)


FIG3 = Figure(
    "s2reducer.fig3",
    "Speed of training, block-sparse ResNet-50",
    Panels(_fig3, simulated_rows),
    Judged(_fig3_verdicts),
    needs={"experiment": ("s2_sparse", LONG).__contains__},
    command="ssfx run experiment=s2_sparse",
    notes=(
        "Accuracy: S2 Reducer against an all-gather of the same blocks, which loses nothing, in long runs: a VGG "
        f"stands for ResNet-50, a small LSTM for the LSTM ({COMMAND}).",
    ),
)


# ---- Figs. 4 and 7: time of sparse communication ---------------------------------------------------------------------


HEADLINE = "s2reducer.headline.comm"
"""The claim of the largest reduction, which is that of Fig. 3(d)."""
TWICE = ("s2reducer.fig4", "s2reducer.fig7")
"""The paper has the figure in its text and in its appendix."""


def _communication(rows: list[Row]) -> list[Verdict]:
    best = [replace(one, claim=HEADLINE) for one in ratios() if one.claim == "s2reducer.fig3.d.comm"]
    every = (*ratios(), *gnmt_ratios())
    own = [one for name in TWICE for one in about(name, every)]
    return _explained(judge_predictions(rows, [*own, *best]))


FIG4 = Figure(
    "s2reducer.fig4",
    "Figs. 4 and 7: time of sparse communication, block-sparse ResNet-50",
    Panels(communication_panels),
    Judged(_communication),
    about=TWICE,
    needs=simulated("s2_sparse"),
)


# ---- Figs. 5 and 6: all-reduce and all-gather over message size, by nominal times ------------------------------------

SIZES_MB = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
MEGABYTE = 1e6
CLUSTER = "s2reducer_10gbe"
COLLECTIVES = {"all_reduce": ("all-reduce", "#0072b2"), "all_gather": ("all-gather", "#d55e00")}


def seconds(collective: str, megabytes: float) -> float:
    """Return the time of one collective when every rank has so many bytes, by nominal times."""
    curve = system_on(cluster(CLUSTER)).exchange[collective]
    return float(curve(megabytes * MEGABYTE))


def ratio(megabytes: float) -> float:
    """Return how many times as long an all-gather takes as an all-reduce."""
    return seconds("all_gather", megabytes) / seconds("all_reduce", megabytes)


def _collectives(figure: Figure, rows: list[Row]) -> Picture:
    """Return the time of both collectives over message size, and the ratio that the text states as an open mark."""
    table: list[dict[str, object]] = []
    canvas, (left, right) = plt.subplots(1, 2, figsize=(2 * COLUMN_IN, 2.3), layout="constrained")
    for name, (label, colour) in COLLECTIVES.items():
        points = [1e3 * seconds(name, mb) for mb in SIZES_MB]
        left.plot(SIZES_MB, points, color=colour, marker="o", markersize=2.5, label=label)
        table += [{"collective": label, "megabytes": mb, "ms": ms} for mb, ms in zip(SIZES_MB, points, strict=True)]
    left.set(yscale="log", ylabel="time (ms)")
    left.legend()
    right.plot(SIZES_MB, [ratio(mb) for mb in SIZES_MB], color="#333333", marker="o", markersize=2.5)
    at = number("s2reducer.appB1.size")
    right.plot([at], [number("s2reducer.appB1.ratio")], **PAPER, label="paper: more from here on")
    right.set_ylim(bottom=0)
    right.set_ylabel("all-gather over all-reduce (x)")
    right.legend(loc="lower right")
    for axis in (left, right):
        axis.set_xscale("log", base=2)
        axis.set_xticks(SIZES_MB[::2], [f"{mb:g}" for mb in SIZES_MB[::2]])
        axis.minorticks_off()
        axis.set_xlabel("message of one rank (MB)")
        axis.grid()
    where = cluster(CLUSTER)
    say_origin(
        canvas,
        f"Simulated with nominal times: {where.nodes} nodes of {where.devices_per_node}, 10 Gb/s Ethernet; the "
        "paper's figure is of InfiniBand, on which the ratio does not depend.",
    )
    return canvas, table


def _fig6_verdicts(rows: list[Row]) -> list[Verdict]:
    """Return verdicts on the ratio for large messages, from nominal times: published ones were fitted to it."""
    limit = number("s2reducer.appB1.size")
    large = [ratio(mb) for mb in SIZES_MB if mb > limit]
    half = cluster(CLUSTER).world_size // 2
    bound = f"our rings give at most P/2 = {half} on any network; the paper measured on InfiniBand (S2-04)"
    return [
        held(
            "s2reducer.appB1.ratio",
            (min(large), max(large)),
            tolerance=0.0,
            reason=bound,
            source="simulated",
            calibration="nominal",
        ),
        held("s2reducer.appB1.size", limit, reason="taken over as the size from which the ratio is read"),
    ]


# The ledger has no claim of Fig. 5, whose caption is merged with that of Fig. 6.
FIG6 = Figure(
    "s2reducer.fig6",
    "Figs. 5 and 6: all-reduce and all-gather on 16 GPUs",
    _collectives,
    Judged(_fig6_verdicts),
    about=("s2reducer.fig6", "s2reducer.fig5"),
)


# ---- Fig. 8: size of the sketch --------------------------------------------------------------------------------------

SHADES = {"1": "#08306b", "0.5": "#2171b5", "0.25": "#6baed6", "0.1": "#e69f00", "0.05": "#d55e00"}
PANELS = {"vgg": "VGG on CIFAR-10, paper: ResNet-50", "lstm": "LSTM on WikiText-2, paper: GNMT-8"}
"""The word in the name of our network, and our title."""
SWEPT = (0.05, 0.1, 0.25, 0.5, 1.0)
SLIGHT = 0.1
"""A reduction of communication below this counts as slight."""


def _fig8(rows: list[Row]) -> list[Panel]:
    """Return quality over steps, and at the end over that of lossless sums, by ratio lambda."""
    colours = {LOSSLESS: "#5f5f5f", **{f"lambda = {ratio}": colour for ratio, colour in SHADES.items()}}
    found = tasks(_long(rows), sketched)
    return [Panel(title, task_of(found, word), colours, LOSSLESS) for word, title in PANELS.items()]


def _fig8_verdicts(rows: list[Row]) -> list[Verdict]:
    """Return whether quality holds at the recommended ratio and falls below it."""
    found = [held("s2reducer.appB3.range", (SWEPT[0], SWEPT[-1]), tolerance=0.0)]
    less = SWEPT[: SWEPT.index(number("s2reducer.appB3.best"))]
    best, most, *fewer = (f"lambda = {ratio:g}" for ratio in (number("s2reducer.appB3.best"), SWEPT[-1], *less))
    every = tasks(_long(rows), sketched)
    known = [task for task in every if task.knows(best, most) and any(map(task.knows, fewer))]
    pairs = gaps(known, (best, most, "equal"), *((best, other, "above") for other in fewer))
    asked = {most: [most], best: [best], "a smaller lambda": fewer}
    missing: Missing = (
        {}
        if pairs
        else {
            named: there_is(every, names[-1])
            for named, names in asked.items()
            if not any(task.knows(name) for task in every for name in names)
        }
    )
    return [*found, judged_order("s2reducer.appB3.best", pairs, known, missing)]


def _comm_s(steps: Steps, swept: float) -> float:
    how, at = timed("s2reducer")
    return steps.step(method(how.scheme, **{**dict(how.options), "ratio": swept}), at).comm_s


def _slight(steps: Steps) -> tuple[bool, str]:
    best = number("s2reducer.appB3.best")
    left = _comm_s(steps, best / 2) / _comm_s(steps, best)
    return left > 1 - SLIGHT, f"{best / 2:g} leaves {100 * left:.0f} % of the communication of {best:g}, ResNet-50"


FIG8 = Figure(
    "s2reducer.fig8",
    "Quality by the size of the sketch",
    Quality(_fig8),
    Judged(_fig8_verdicts, orders={"s2reducer.appB3.gain_slight": _slight}, cost="minutes on two cores"),
    needs={"experiment": (LONG, "s2_sparse").__contains__},
    command=COMMAND,
)
