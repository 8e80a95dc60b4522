"""SSFusion Fig. 12 (Experiment 2): quality of long training relative to dense training, over seeds, and its curves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median

from experiments.common.claims.ledger import claims_by_id
from experiments.common.claims.values import METHODS
from experiments.common.claims.verdicts import Verdict
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
from experiments.common.evaluation.quality_panels import Panel, draw_quality
from experiments.common.figures.auto import AUTO
from experiments.common.figures.paper_words import OWN, RIVALS, scheme_name
from experiments.common.figures.style import scheme_colour
from ssfx.core.rows import Row
from ssfx.lab.calibration.step_law import FEWEST_STEPS
from ssfx.lab.results.comparisons import DENSE_BASELINE

NAME = "ssfusion.fig12"
TITLE = "Fig. 12: quality during and after training, small models of the paper's four families"
CLAIMS = (NAME, "ssfusion.headline.accuracy")
UNCONVERGED = "the paper trains full networks to the end; ours are small and stop after 2,000 steps, far from it"
NEEDS = {"experiment": ("convergence", LONG).__contains__, "steps": FEWEST_STEPS.__le__}
COMMAND = LONG_COMMAND
NOTES = (
    f"Small members of the paper's families, trained for {FEWEST_STEPS:,} steps or more: what is judged is the sign "
    "and the rank of a gap to dense training, not its level.",
    "On the right, every run relative to the mean of dense training; a bar is the mean. A method or a family without "
    "such a run is named as one: shorter runs are no substitute.",
)

PANELS = {
    "resnet": ("(a) ResNet", "resnet152"),
    "vgg": ("(b) VGG", "vgg19"),
    "lstm": ("(c) LSTM", "lstm"),
    "bert": ("(d) BERT", "bert"),
}
"""Families of models by a word in the names of ours: title, and the word in the ids of claims."""
DATA = {"cifar10": "CIFAR-10", "wikitext2_small": "WikiText-2"}
OURS = OWN[-1]
SHOWN = (DENSE_BASELINE, *RIVALS, "per_tensor", "fused_all", OURS, AUTO)
"""The last is not of the paper and in no verdict."""
ORDERED = ("oktopk", "spardl", "omgs", "cupcake")
"""Rivals that the paper has below SSFusion."""
LAYERWISE = ("hipress", "espresso")
"""Rivals that the paper has beside it."""
DENSITY = 0.01
"""Of runs, where a scheme has several: the paper's."""


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write, per family, the curves of the schemes and their final quality relative to dense training."""
    found = tasks(rows, method)
    panels = []
    for family, (title, _) in PANELS.items():
        task = task_of(found, family)
        data = next(row.case.dataset for own in task.methods.values() for row in own) if task else ""
        said = f"{title} on {DATA.get(data, data)}" if task else title
        colours = {scheme: scheme_colour(scheme) for scheme in SHOWN}
        panels.append(Panel(said, task, colours, DENSE_BASELINE, printed(family), (DENSE_BASELINE, OURS)))
    return draw_quality(NAME, TITLE, panels, out, scheme_name)


def finding(rows: list[Row]) -> str:
    """Return, per task, the median quality of every scheme."""
    parts = []
    for task in tasks(rows, method):
        name = metric_of(next(iter(task.methods.values()))[0])
        values = {
            scheme: median(row.metrics[name] or 0.0 for row in task.methods[scheme])
            for scheme in SHOWN
            if scheme in task.methods
        }
        parts.append(f"{task.model} ({name}): {', '.join(f'{scheme} {value:.3g}' for scheme, value in values.items())}")
    return "; ".join(parts)


def judge(rows: list[Row]) -> list[Verdict]:
    """Return sign and rank of every gap to dense training, and verdicts on the orders that the paper states."""
    every = [one for one in tasks(rows, method) if one.knows(DENSE_BASELINE)]
    found: list[Verdict] = []
    shown: list[Task] = []
    for family, (title, word) in PANELS.items():
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


def method(row: Row) -> str:
    """Return the scheme of a row as the paper ran it: at its density, with the usual memory and compressor."""
    case = row.case
    same = case.density in (None, DENSITY) and case.compressor in (None, "dgc", "topk") and usual(row)
    layered = case.scheme != "per_tensor" or case.compressor == "dgc"
    return case.scheme if case.scheme == AUTO or (case.scheme in SHOWN and same and layered) else ""


def printed(family: str) -> dict[str, float]:
    """Return the final quality that the paper prints for a family, relative to its dense training, by scheme."""
    start = f"ssfusion.exp2.{PANELS[family][1]}."
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
    return Verdict(claim, "not comparable", words, "measured", "", f"the level of {task.words}", COMMAND, COST)


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
    return Verdict(claim, "not comparable", here, "measured", "", UNCONVERGED, COMMAND, COST)


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
