"""SSFusion's quality by fusion, from long runs: Figs. 2 and 5(b)."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.artifacts import long_figure
from experiments.common.evaluation.gaps import COMMAND as LONG_COMMAND
from experiments.common.evaluation.gaps import (
    COST,
    LONG,
    NO_ROW,
    Compared,
    Task,
    gaps,
    judged_gaps,
    judged_order,
    metric_of,
    tasks,
    there_is,
    usual,
)
from experiments.common.evaluation.quality_panels import Panel, Quality
from experiments.common.figures.figure import Figure
from experiments.common.validation.published_steps import number
from ssfx.core.rows import Row
from ssfx.lab.calibration.long_runs import sent_compression
from ssfx.perf_model.operator_counts import model_work

DENSITY = 0.01
"""The paper's, of runs where a scheme has several."""
DENSITIES = {"bert_mini": 0.05}
"""Of networks so small that the paper's density is less than an element of a tensor."""
QUESTIONS = {"experiment": (LONG, "question_quality").__contains__, "evaluate": True}
"""Needs of a figure that a BERT stands in, which learns its task in fewer steps than long runs have."""
STAND_INS = {
    "ResNet-152": {"resnet20_cifar10": "ResNet-20 on CIFAR-10", "vgg_small_cifar10": "small VGG on CIFAR-10"},
    "GPT2-large": {
        "gpt2_small_wikitext2": "GPT-2 of 3 layers on WikiText-2",
        "lstm_wikitext2_small": "LSTM on WikiText-2",
    },
    "BERT-large": {"bert_mini": "BERT of 2 layers on generated questions"},
}
"""Of the paper's networks: ours, the more alike first, with words."""


def standing_in(found: Sequence[Task], paper: str) -> list[Task]:
    """Return the tasks of networks that stand for the paper's: those of most methods, then the more alike, first."""
    known = list(STAND_INS[paper])
    own = [one for one in found if one.model in known]
    return sorted(own, key=lambda one: (-len(one.methods), known.index(one.model)))


def titled(start: str, task: Task | None, paper: str) -> str:
    """Return the title of a panel: our network, if there is one, and the paper's."""
    return f"{start}{STAND_INS[paper][task.model]}, for the paper's {paper}" if task else f"{start}{paper}"


# ---- Fig. 2: by how many tensors are compressed jointly --------------------------------------------------------------

DEGREE_PANELS = {"a": ("acc", "ResNet-152"), "b": ("f1", "BERT-large")}
"""The paper's panels: the quality, and the network."""
PER_TENSOR, ALL = "per-tensor", 100
FEWEST_TENSORS = 65
"""Of a network on which fusion degrees are compared: of fewer, a fifth is a handful, where the paper's has 467."""
DEGREES = (20, 40, 60, 80, ALL)
DEGREE_COLOURS = {
    PER_TENSOR: "#5f5f5f",
    "20 %": "#9ecae1",
    "40 %": "#6baed6",
    "60 %": "#4292c6",
    "80 %": "#2171b5",
    "100 %": "#084594",
}


def _fig2(rows: list[Row]) -> list[Panel]:
    """Return quality over steps and at the end, by fusion degree, a panel for each of the paper's."""
    found = tasks(rows, fused)
    panels = []
    for panel, (_, paper) in DEGREE_PANELS.items():
        stated = printed_by_degree(panel)
        colours = {name: DEGREE_COLOURS[name] for name in DEGREE_COLOURS if name in stated or name == PER_TENSOR}
        task = next(iter(standing_in(found, paper)), None)
        colours |= {name: DEGREE_COLOURS[name] for name in DEGREE_COLOURS if task and name in task.methods}
        colours = dict(sorted(colours.items(), key=lambda item: list(DEGREE_COLOURS).index(item[0])))
        panels.append(Panel(titled(f"({panel}) ", task, paper), task, colours, PER_TENSOR, stated))
    return panels


def _fig2_verdicts(figure: Figure, rows: list[Row]) -> Sequence[Verdict]:
    """Return sign and rank of the gap to tensors one by one, and whether quality falls with the degree."""
    all_sizes = tasks(rows, fused)
    anyhow = [one for one in all_sizes if len(model_work(one.model).tensors) >= FEWEST_TENSORS]
    every = [one for one in anyhow if one.knows(PER_TENSOR)]
    found = []
    for panel, (quality, paper) in DEGREE_PANELS.items():
        stated = printed_by_degree(panel)
        start = f"ssfusion.fig2.{panel}"
        claims = {name: f"{start}.fd{name.removesuffix(' %')}.{quality}" for name in stated}
        large, small = standing_in(anyhow, paper), standing_in(all_sizes, paper)
        ran = next((one for one in small if one.methods.keys() & claims), None)
        if ran and not large:
            count = len(model_work(ran.model).tensors)
            why = f"{ran.words} in place of {paper} has {count} tensors, of which a degree of fusion joins too few"
            found += [_measured(claim, "", why) for claim in claims.values()]
        else:
            found += judged_gaps(
                large,
                claims,
                stated,
                PER_TENSOR,
                paper,
                lambda name, paper=paper: f"{name} of the tensors joined in place of {paper}",  # type: ignore[misc]
            )
        if task := next((one for one in (*large, *small) if PER_TENSOR in one.methods), None):
            own = task.methods[PER_TENSOR]
            level = fmean(float(row.metrics[metric_of(row)] or 0.0) for row in own)
            why = f"the level of {task.words} in place of {paper}"
            found.append(_measured(f"{start}.per.{quality}", f"{100 * level:.1f} percent", why))
    pairs: list[Compared] = []
    words = []
    for task in every:
        known = [f"{degree} %" for degree in DEGREES if task.knows(f"{degree} %")]
        words += [task] if known else []
        pairs += [(f"{one} over {PER_TENSOR}", task.gap(one, PER_TENSOR), "below") for one in known]
        pairs += [(f"{few} over {more}", task.gap(few, more), "not below") for few, more in pairwise(known)]
    states = (there_is(anyhow, f"{degree} %") for degree in DEGREES)
    there = next((state for state in states if state != NO_ROW), NO_ROW)
    missing = {} if pairs else {"several fusion degrees": there}
    return [*found, judged_order("ssfusion.fig2.mono.acc", pairs, words, missing)]


def _measured(claim: str, ours: str, why: str) -> Verdict:
    """Return the verdict on a claim of which a run says something that compares with nothing."""
    return Verdict(claim, "not comparable", ours, "measured", "", why, LONG_COMMAND, COST)


def _fig2_finding(rows: list[Row]) -> str:
    """Return how quality differs from that of tensors one by one, for each task and degree."""
    parts = [
        f"{task.model}, {name} over {PER_TENSOR} {task.gap(name, PER_TENSOR)}"
        for task in tasks(rows, fused)
        for name in task.methods
        if name != PER_TENSOR and PER_TENSOR in task.methods
    ]
    return "; ".join(parts) or "no long row of several fusion degrees"


def fused(row: Row) -> str:
    """Return how many tensors a row compressed jointly, in words; "" for other runs."""
    case = row.case
    if (
        case.compressor != "dgc"
        or case.density != DENSITIES.get(case.model, DENSITY)
        or case.memory not in (None, "residual")
    ):
        return ""
    options = dict(case.scheme_options)
    degree = int(options.pop("fusion_degree", ALL))
    if options or case.scheme not in ("per_tensor", "fused_all"):
        return ""
    return PER_TENSOR if case.scheme == "per_tensor" else f"{degree} %"


def printed_by_degree(panel: str) -> dict[str, float]:
    """Return the quality at each degree that the paper prints, over that of tensors one by one."""
    quality, _ = DEGREE_PANELS[panel]
    start = f"ssfusion.fig2.{panel}"
    degrees = (20, ALL) if panel == "a" else (ALL,)
    return {f"{d} %": number(f"{start}.fd{d}.{quality}") / number(f"{start}.per.{quality}") for d in degrees}


FIG2 = long_figure(
    "ssfusion.fig2.quality",
    "Fig. 2: quality by how many tensors are compressed jointly",
    Quality(_fig2),
    _fig2_verdicts,
    about=("ssfusion.fig2",),
    needs=QUESTIONS,
    said=_fig2_finding,
    notes=(
        "A small ResNet, or without its runs a small VGG on the same task, stands for ResNet-152. What is judged is "
        "the sign and the rank of the gap to tensors compressed one by one, not its level, of networks of "
        f"{FEWEST_TENSORS} tensors or more.",
    ),
)


# ---- Fig. 5(b): selective sparsification against per-tensor, multi-tensor and dense training -------------------------

WAYS = {"ddp": "dense", "per_tensor": "per-tensor", "fused_all": "multi-tensor", "ssfusion_naive": "selective"}
WAY_COLOURS = {"multi-tensor": "#a8324a", "selective": "#0072b2", "per-tensor": "#e69f00", "dense": "#5f5f5f"}
GAIN_PANELS = {"resnet152": "ResNet-152", "gpt2large": "GPT2-large", "bertlarge": "BERT-large"}
"""Gains that the paper prints, by the word in claims: its networks."""


def _fig5b(rows: list[Row]) -> list[Panel]:
    """Return quality over steps and at the end over that of multi-tensor sparsification, a panel for each task."""
    found = tasks(rows, way)
    panels = []
    for key, paper in GAIN_PANELS.items():
        task, stated = next(iter(standing_in(found, paper)), None), {"selective": 1 + number(_gain_claim(key))}
        panels.append(Panel(titled("", task, paper), task, WAY_COLOURS, "multi-tensor", stated))
    return panels


def _fig5b_verdicts(figure: Figure, rows: list[Row]) -> Sequence[Verdict]:
    """Return whether selective quality equals that of per-tensor and of dense training, and the sign of its gains."""
    every = tasks(rows, way)
    found: list[Verdict] = []
    shown: list[Task] = []
    for key, paper in GAIN_PANELS.items():
        here = standing_in(every, paper)
        own = [one for one in here if one.knows("selective")]
        printed = {"selective": 1 + number(_gain_claim(key)), "multi-tensor": 1.0}
        missing = {
            name: there_is(here, name)
            for name in ("selective", "multi-tensor")
            if not any(one.knows(name) for one in here)
        }
        found += judged_gaps(
            own,
            {"selective": _gain_claim(key)},
            printed,
            "multi-tensor",
            paper,
            lambda name, missing=missing: missing or name,  # type: ignore[misc]
        )
        shown += own[:1]
    pairs = gaps(shown, ("selective", "per-tensor", "equal"), ("selective", "dense", "equal"))
    lacking = {} if pairs else {"selective": there_is(every, "selective")}
    return [*found, judged_order("ssfusion.fig5.acc_parity", pairs, shown, lacking)]


def _fig5b_finding(rows: list[Row]) -> str:
    """Return how selective quality differs from that of multi-tensor sparsification by task, and what both sent."""
    parts = [
        f"{task.model}: selective over multi-tensor {task.gap('selective', 'multi-tensor')}{_sent(task)}"
        for task in tasks(rows, way)
        if {"selective", "multi-tensor"} <= set(task.methods)
    ]
    return "; ".join(parts) or "no long row of selective and multi-tensor sparsification"


def _sent(task: Task) -> str:
    """Return how many times fewer bytes than the gradient has both sent, in brackets; "" where a row does not say."""
    sent = {name: sent_compression(task.methods[name]) for name in ("selective", "multi-tensor")}
    words = [f"{name} sent {times:.3g}x" for name, times in sent.items() if times is not None]
    return f" ({', '.join(words)} fewer bytes than the gradient has)" if len(words) == len(sent) else ""


def way(row: Row) -> str:
    """Return how a row's tensors were sparsified, "" for ways that the figure does not show."""
    case = row.case
    density = DENSITIES.get(case.model, DENSITY)
    same = case.compressor in (None, "dgc") and case.density in (None, density) and usual(row)
    return WAYS.get(case.scheme, "") if same else ""


def _gain_claim(key: str) -> str:
    return f"ssfusion.fig5.{key}.gain"


FIG5B = long_figure(
    "ssfusion.fig5b",
    "Fig. 5(b): quality with per-tensor, multi-tensor and selective sparsification",
    Quality(_fig5b),
    _fig5b_verdicts,
    about=("ssfusion.fig5",),
    needs=QUESTIONS,
    said=_fig5b_finding,
    notes=(
        "Small networks stand for the paper's: a ResNet or a VGG for ResNet-152, a GPT-2 or an LSTM for GPT2-large, by "
        "which of them has long runs of the most ways. What is judged is the sign of a gap, not its level.",
    ),
)
