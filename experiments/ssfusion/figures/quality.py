"""SSFusion's quality, from long runs: Figs. 2, 5(b) and 12."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import TYPE_CHECKING

from experiments.common.claims.ledger import claims_by_id
from experiments.common.claims.values import METHODS
from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.artifacts import Quality, long_figure
from experiments.common.evaluation.gaps import COMMAND as LONG_COMMAND
from experiments.common.evaluation.gaps import (
    COST,
    LONG,
    Gap,
    Task,
    Wanted,
    judged_gaps,
    judged_order,
    metric_of,
    no_row,
    task_of,
    tasks,
    usual,
)
from experiments.common.evaluation.judging import number
from experiments.common.evaluation.quality_panels import Panel
from experiments.common.figures.auto import AUTO
from experiments.common.figures.figure import Figure
from experiments.common.figures.paper_words import OWN, RIVALS, scheme_name
from experiments.common.figures.style import scheme_colour
from ssfx.core.rows import Row
from ssfx.lab.calibration.step_law import FEWEST_STEPS
from ssfx.lab.results.comparisons import DENSE_BASELINE

if TYPE_CHECKING:
    pass


DENSITY = 0.01
"""The paper's, of runs where a scheme has several."""


# ---- Fig. 2: by how many tensors are compressed jointly --------------------------------------------------------------

DEGREE_PANELS = {"a": ("vgg", "acc", "ResNet-152", "(a) VGG on CIFAR-10, paper: ResNet-152"),
          "b": ("bert", "f1", "BERT-large", "(b) BERT on questions")}  # fmt: skip
"""The paper's panels: the word in the name of our network, the quality, the network that ours stands for, our title."""
PER_TENSOR, ALL = "per-tensor", 100
DEGREES = (20, 40, 60, 80, ALL)
DEGREE_COLOURS = {PER_TENSOR: "#5f5f5f", "20 %": "#9ecae1", "40 %": "#6baed6", "60 %": "#4292c6", "80 %": "#2171b5",
           "100 %": "#084594"}  # fmt: skip


def _fig2(rows: list[Row]) -> list[Panel]:
    """Return quality over steps and at the end, by fusion degree, a panel for each of the paper's."""
    found = tasks(rows, fused)
    panels = []
    for panel, (word, _, _, title) in DEGREE_PANELS.items():
        stated = printed_by_degree(panel)
        colours = {name: DEGREE_COLOURS[name] for name in DEGREE_COLOURS if name in stated or name == PER_TENSOR}
        task = task_of(found, word)
        colours |= {name: DEGREE_COLOURS[name] for name in DEGREE_COLOURS if task and name in task.methods}
        panels.append(Panel(title, task, dict(sorted(colours.items(), key=_degree)), PER_TENSOR, stated))
    return panels


def _fig2_verdicts(figure: Figure, rows: list[Row]) -> Sequence[Verdict]:
    """Return sign and rank of the gap to tensors one by one, and whether quality falls with the degree."""
    every = [one for one in tasks(rows, fused) if one.knows(PER_TENSOR)]
    found = []
    for panel, (word, quality, paper, _) in DEGREE_PANELS.items():
        task = task_of(every, word)
        stated = printed_by_degree(panel)
        claims = {name: f"ssfusion.fig2.{panel}.fd{name.removesuffix(' %')}.{quality}" for name in stated}
        given = judged_gaps([task] if task else [], claims, stated, PER_TENSOR, paper)
        judged = {one.claim for one in given}
        found += [*given, *(no_row(claim, [f"{name} of the tensors joined in place of {paper}"])
                            for name, claim in claims.items() if claim not in judged)]  # fmt: skip
    if task := task_of(every, DEGREE_PANELS["a"][0]):
        own = [float(row.metrics["top1"] or 0.0) for row in task.methods[PER_TENSOR]]
        why = f"the level of {task.words} in place of {DEGREE_PANELS['a'][2]}"
        found.append(Verdict("ssfusion.fig2.a.per.acc", "not comparable", f"{100 * fmean(own):.1f} percent", "measured",
                             "", why, LONG_COMMAND, COST))  # fmt: skip
    pairs: list[tuple[str, Gap, Wanted]] = []
    words = []
    for task in every:
        known = [f"{degree} %" for degree in DEGREES if task.knows(f"{degree} %")]
        words += [task.words] if known else []
        pairs += [(f"{one} over {PER_TENSOR}", task.gap(one, PER_TENSOR), "below") for one in known]
        pairs += [(f"{few} over {more}", task.gap(few, more), "not below") for few, more in pairwise(known)]
    if not pairs:
        return [*found, no_row("ssfusion.fig2.mono.acc", ["several fusion degrees"])]
    return [*found, judged_order("ssfusion.fig2.mono.acc", pairs, "; ".join(words))]


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
    if case.compressor != "dgc" or case.density != DENSITY or case.memory not in (None, "residual"):
        return ""
    options = dict(case.scheme_options)
    degree = int(options.pop("fusion_degree", ALL))
    if options or case.scheme not in ("per_tensor", "fused_all"):
        return ""
    return PER_TENSOR if case.scheme == "per_tensor" else f"{degree} %"


def printed_by_degree(panel: str) -> dict[str, float]:
    """Return the quality at each degree that the paper prints, over that of tensors one by one."""
    _, quality, _, _ = DEGREE_PANELS[panel]
    start = f"ssfusion.fig2.{panel}"
    degrees = (20, ALL) if panel == "a" else (ALL,)
    return {f"{d} %": number(f"{start}.fd{d}.{quality}") / number(f"{start}.per.{quality}") for d in degrees}


def _degree(item: tuple[str, str]) -> int:
    return 0 if item[0] == PER_TENSOR else int(item[0].removesuffix(" %"))


FIG2 = long_figure(
    "ssfusion.fig2.quality", "Fig. 2: quality by how many tensors are compressed jointly", Quality(_fig2),
    _fig2_verdicts,
    about=("ssfusion.fig2",), said=_fig2_finding,
    notes=(
        "No long run is of a small ResNet: a VGG on the same task stands for ResNet-152. What is judged is the sign "
        "and the rank of the gap to tensors compressed one by one, not its level.",
    ),
)  # fmt: skip


# ---- Fig. 5(b): selective sparsification against per-tensor, multi-tensor and dense training -------------------------

WAYS = {"ddp": "dense", "per_tensor": "per-tensor", "fused_all": "multi-tensor", "ssfusion_naive": "selective"}
WAY_COLOURS = {"multi-tensor": "#a8324a", "selective": "#0072b2", "per-tensor": "#e69f00", "dense": "#5f5f5f"}
GAIN_PANELS = {
    "resnet152": ("vgg", "ResNet-152", "VGG on CIFAR-10, paper: ResNet-152"),
    "gpt2large": ("lstm", "GPT2-large", "LSTM on WikiText-2, paper: GPT2-large"),
    "bertlarge": ("bert", "BERT-large", "BERT on questions"),
}
"""Gains that the paper prints: the word in the name of our network, the network that ours stands for, our title."""


def _fig5b(rows: list[Row]) -> list[Panel]:
    """Return quality over steps and at the end over that of multi-tensor sparsification, a panel for each task."""
    found = tasks(rows, way)
    return [
        Panel(title, task_of(found, word), WAY_COLOURS, "multi-tensor", {"selective": 1 + number(_gain_claim(key))})
        for key, (word, _, title) in GAIN_PANELS.items()
    ]


def _fig5b_verdicts(figure: Figure, rows: list[Row]) -> Sequence[Verdict]:
    """Return whether selective quality equals that of per-tensor and of dense training, and the sign of its gains."""
    every = tasks(rows, way)
    found: list[Verdict] = []
    pairs: list[tuple[str, Gap, Wanted]] = []
    words = []
    for key, (word, paper, _) in GAIN_PANELS.items():
        own = [one for one in every if word in one.model and one.knows("selective")]
        printed = {"selective": 1 + number(_gain_claim(key)), "multi-tensor": 1.0}
        given = judged_gaps(own, {"selective": _gain_claim(key)}, printed, "multi-tensor", paper)
        found += given or [
            no_row(
                _gain_claim(key),
                [
                    name
                    for name in ("selective", "multi-tensor")
                    if not any(one.knows(name) for one in every if word in one.model)
                ],
            )
        ]
        for task in own[:1]:
            words.append(task.words)
            pairs += [
                (f"{task.model}: selective over {other}", task.gap("selective", other), "equal")
                for other in ("per-tensor", "dense")
                if task.knows(other)
            ]
    parity = "ssfusion.fig5.acc_parity"
    return [*found, judged_order(parity, pairs, "; ".join(words)) if pairs else no_row(parity, ["selective"])]


def _fig5b_finding(rows: list[Row]) -> str:
    """Return how selective quality differs from that of multi-tensor sparsification, for each task."""
    parts = [
        f"{task.model}: selective over multi-tensor {task.gap('selective', 'multi-tensor')}"
        for task in tasks(rows, way)
        if {"selective", "multi-tensor"} <= set(task.methods)
    ]
    return "; ".join(parts) or "no long row of selective and multi-tensor sparsification"


def way(row: Row) -> str:
    """Return how a row's tensors were sparsified, "" for ways that the figure does not show."""
    case = row.case
    same = case.compressor in (None, "dgc") and case.density in (None, DENSITY) and usual(row)
    return WAYS.get(case.scheme, "") if same else ""


def _gain_claim(key: str) -> str:
    return f"ssfusion.fig5.{key}.gain"


FIG5B = long_figure(
    "ssfusion.fig5b", "Fig. 5(b): quality with per-tensor, multi-tensor and selective sparsification", Quality(_fig5b),
    _fig5b_verdicts, about=("ssfusion.fig5",), said=_fig5b_finding,
    notes=(
        "A VGG stands for ResNet-152 and an LSTM for GPT2-large: the same task on other networks, of which there are "
        "long runs. What is judged is the sign of a gap, not its level.",
    ),
)  # fmt: skip


# ---- Fig. 12: relative to dense training, over seeds -----------------------------------------------------------------

FAMILIES = {
    "resnet": ("(a) ResNet", "resnet152"),
    "vgg": ("(b) VGG", "vgg19"),
    "lstm": ("(c) LSTM", "lstm"),
    "bert": ("(d) BERT", "bert"),
}
"""Families of models by a word in the names of ours: title, and the word in the ids of claims."""
DATA = {"cifar10": "CIFAR-10", "wikitext2_small": "WikiText-2"}
UNCONVERGED = "the paper trains full networks to the end; ours are small and stop after 2,000 steps, far from it"
OURS = OWN[-1]
SHOWN = (DENSE_BASELINE, *RIVALS, "per_tensor", "fused_all", OURS, AUTO)
"""The last is not of the paper and in no verdict."""
ORDERED = ("oktopk", "spardl", "omgs", "cupcake")
"""Rivals that the paper has below SSFusion."""
LAYERWISE = ("hipress", "espresso")
"""Rivals that the paper has beside it."""


def _fig12(rows: list[Row]) -> list[Panel]:
    """Return, per family, the curves of the schemes and their final quality relative to dense training."""
    found = tasks(rows, scheme_of)
    panels = []
    for family, (title, _) in FAMILIES.items():
        task = task_of(found, family)
        data = next(row.case.dataset for own in task.methods.values() for row in own) if task else ""
        said = f"{title} on {DATA.get(data, data)}" if task else title
        colours = {scheme: scheme_colour(scheme) for scheme in SHOWN}
        panels.append(Panel(said, task, colours, DENSE_BASELINE, printed(family), (DENSE_BASELINE, OURS)))
    return panels


def _fig12_finding(rows: list[Row]) -> str:
    """Return, per task, the median quality of every scheme."""
    parts = []
    for task in tasks(rows, scheme_of):
        name = metric_of(next(iter(task.methods.values()))[0])
        values = {
            scheme: median(row.metrics[name] or 0.0 for row in task.methods[scheme])
            for scheme in SHOWN
            if scheme in task.methods
        }
        parts.append(f"{task.model} ({name}): {', '.join(f'{scheme} {value:.3g}' for scheme, value in values.items())}")
    return "; ".join(parts)


def _fig12_verdicts(figure: Figure, rows: list[Row]) -> list[Verdict]:
    """Return sign and rank of every gap to dense training, and verdicts on the orders that the paper states."""
    every = [one for one in tasks(rows, scheme_of) if one.knows(DENSE_BASELINE)]
    found: list[Verdict] = []
    shown: list[Task] = []
    for family, (title, word) in FAMILIES.items():
        task = task_of(every, family)
        claims = {scheme: f"ssfusion.exp2.{word}.{_subject(scheme)}" for scheme in (OURS, *ORDERED)}
        given = judged_gaps([task] if task else [], claims, printed(family))
        judged = {one.claim for one in given}
        found += given
        small = "" if task else f" on a small {title.partition(' ')[2]}"
        found += [no_row(claim, [scheme_name(one) + small]) for one, claim in claims.items() if claim not in judged]
        order = f"ssfusion.exp2.{word}.order"
        if task and task.knows(OURS):
            shown.append(task)
            found += [_level(f"ssfusion.exp2.{word}.dense", task), _order(order, task)]
        else:
            missing = [f"dense training{small}", f"SSFusion{small}"]
            found += [no_row(f"ssfusion.exp2.{word}.dense", missing[:1]), no_row(order, missing[1:])]
    if shown:
        found.append(_about_equal("ssfusion.headline.accuracy", shown))
        found.append(_beside("ssfusion.exp2.layerwise_equal", shown))
    return found


def scheme_of(row: Row) -> str:
    """Return the scheme of a row as the paper ran it: at its density, with the usual memory and compressor."""
    case = row.case
    same = case.density in (None, DENSITY) and case.compressor in (None, "dgc", "topk") and usual(row)
    layered = case.scheme != "per_tensor" or case.compressor == "dgc"
    return case.scheme if case.scheme == AUTO or (case.scheme in SHOWN and same and layered) else ""


def printed(family: str) -> dict[str, float]:
    """Return the final quality that the paper prints for a family, relative to its dense training, by scheme."""
    start = f"ssfusion.exp2.{FAMILIES[family][1]}."
    found = {}
    for claim in (claim for claim in claims_by_id().values() if claim.id.startswith(start)):
        if claim.bounds:
            scheme = DENSE_BASELINE if claim.subject == "dense" else METHODS.get(claim.subject, "")
            found[scheme] = claim.bounds[0], claim.unit
    dense, _ = found.pop(DENSE_BASELINE)
    return {scheme: dense / value if unit == "ppl" else value / dense for scheme, (value, unit) in found.items()}


def _subject(scheme: str) -> str:
    return next(name for name, ours in METHODS.items() if ours == scheme)


def _level(claim: str, task: Task) -> Verdict:
    """Return our dense quality, which no level of another network compares with."""
    rows = task.methods[DENSE_BASELINE]
    name = metric_of(rows[0])
    words = f"{name} {fmean(float(row.metrics[name] or 0.0) for row in rows):.3g}"
    return Verdict(claim, "not comparable", words, "measured", "", f"the level of {task.words}", LONG_COMMAND, COST)


def _order(claim: str, task: Task) -> Verdict:
    """Return whether SSFusion is not above dense training, and above every rival."""
    pairs: list[tuple[str, Gap, Wanted]] = [
        ("dense over SSFusion", task.gap(DENSE_BASELINE, OURS), "not below"),
        *((f"SSFusion over {scheme_name(one)}", task.gap(OURS, one), "above") for one in ORDERED if task.knows(one)),
    ]
    return judged_order(claim, pairs, task.words, [scheme_name(one) for one in ORDERED if not task.knows(one)])


def _about_equal(claim: str, shown: Sequence[Task]) -> Verdict:
    """Return what SSFusion loses here, which is held against nothing: the paper speaks of networks that converged."""
    here = "; ".join(f"{task.model} {task.gap(OURS, DENSE_BASELINE)}" for task in shown)
    return Verdict(claim, "not comparable", here, "measured", "", UNCONVERGED, LONG_COMMAND, COST)


def _beside(claim: str, shown: Sequence[Task]) -> Verdict:
    """Return whether HiPress and Espresso end where SSFusion does."""
    pairs: list[tuple[str, Gap, Wanted]] = [
        (f"{task.model}: SSFusion over {scheme_name(one)}", task.gap(OURS, one), "equal")
        for task in shown
        for one in LAYERWISE
        if task.knows(one)
    ]
    missing = [scheme_name(one) for one in LAYERWISE if not any(task.knows(one) for task in shown)]
    if not pairs:
        return no_row(claim, missing)
    return judged_order(claim, pairs, "; ".join(task.words for task in shown), missing)


FIG12 = long_figure(
    "ssfusion.fig12", "Fig. 12: quality during and after training, small models of the paper's four families",
    Quality(_fig12, scheme_name), _fig12_verdicts, about=("ssfusion.fig12", "ssfusion.headline.accuracy"),
    needs={"experiment": ("convergence", LONG).__contains__, "steps": FEWEST_STEPS.__le__}, said=_fig12_finding,
    notes=(
        f"Small members of the paper's families, trained for {FEWEST_STEPS:,} steps or more: what is judged is the "
        "sign and the rank of a gap to dense training, not its level.",
        "On the right, every run relative to the mean of dense training; a bar is the mean. A method or a family "
        "without such a run is named as one: shorter runs are no substitute.",
    ),
)  # fmt: skip
