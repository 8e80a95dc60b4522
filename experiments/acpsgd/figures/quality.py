"""ACP-SGD's accuracy, from long runs: Figs. 6 and 7."""

from collections.abc import Callable, Mapping
from math import log
from statistics import fmean

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.artifacts import Judged, long_figure
from experiments.common.evaluation.gaps import (
    COST,
    UNCONVERGED,
    Task,
    Wanted,
    gaps,
    judged_order,
    log_quality,
    no_row,
    task_of,
    tasks,
    there_is,
    usual,
)
from experiments.common.evaluation.judging import says
from experiments.common.evaluation.quality_panels import Panel, Quality
from experiments.common.figures.auto import AUTO, COLOUR
from ssfx.core.rows import Row

PANELS = {"vgg16": ("vgg", "VGG on CIFAR-10"), "resnet18": ("resnet", "ResNet on CIFAR-10")}
"""The paper's networks: the word in the name of ours, and our title."""


# ---- Fig. 6: accuracy over training ----------------------------------------------------------------------------------

METHODS = {"ddp": "S-SGD", "powersgd": "Power-SGD", "acpsgd": "ACP-SGD"}
COLOURS = {"S-SGD": "#5f5f5f", "Power-SGD": "#a8324a", "ACP-SGD": "#0072b2", AUTO: COLOUR}
PARITY: tuple[tuple[str, str, Wanted], ...] = (("ACP-SGD", "S-SGD", "equal"), ("ACP-SGD", "Power-SGD", "equal"))
SLOWER: tuple[tuple[str, str, Wanted], ...] = (("ACP-SGD", "S-SGD", "below"), ("Power-SGD", "S-SGD", "below"))
"""What the text says of the end, and of the beginning."""
EARLY = 0.1
"""Part of the training that counts as early."""


def method(row: Row) -> str:
    """Return what the paper calls a row's method, scheme=auto as it is, "" for others."""
    plain = row.case.compressor in (None, row.case.scheme) and usual(row)
    return AUTO if row.case.scheme == AUTO else METHODS.get(row.case.scheme, "") if plain else ""


def _fig6_verdicts(rows: list[Row]) -> list[Verdict]:
    """Return verdicts on the order of final and early accuracies, and on gaps to S-SGD; levels do not compare."""
    own = [row for row in rows if any(word in row.case.model for word, _ in PANELS.values())]
    final, early = tasks(own, method), tasks([row for row in own if row.curve], method, _early)
    found = []
    for key, (word, _) in PANELS.items():
        task = task_of(final, word)
        if task and task.knows("ACP-SGD", "S-SGD"):
            found.append(_gap(f"acpsgd.fig6.{key}", task))
        else:
            there = there_is([task] if task else [], "ACP-SGD")
            found.append(no_row(f"acpsgd.fig6.{key}", {f"ACP-SGD on {key}": there}))
    for claim, trained, wanted in (("acpsgd.fig6.parity", final, PARITY), ("acpsgd.fig6.early", early, SLOWER)):
        known = [one for one in trained if one.knows(*METHODS.values())]
        missing = [title for word, title in PANELS.values() if not task_of(trained, word)]
        few = {
            name: there_is(trained, name) for name in METHODS.values() if not any(one.knows(name) for one in trained)
        }
        found.append(judged_order(claim, gaps(known, *wanted), known, missing if known or missing else few))
    return found


def _gap(claim: str, task: Task) -> Verdict:
    """Return what ACP-SGD loses in accuracy, held against nothing: the paper's networks have converged."""
    seeds = task.shared("S-SGD", "ACP-SGD")
    dense, ours = (
        fmean(float(row.metrics["top1"] or 0.0) for row in task.methods[name] if row.case.seed in seeds)
        for name in ("S-SGD", "ACP-SGD")
    )
    text = f"{100 * ours:.1f} percent, {100 * (ours - dense):+.2f} points to S-SGD; {task.gap('ACP-SGD', 'S-SGD')}"
    return says(claim, "not comparable", text, f"Reduced scale ({task.words}): {UNCONVERGED}.", source="measured")


def _early(row: Row) -> float:
    """Return the log of accuracy after EARLY of the training, of the inverse where lower is better."""
    name = "perplexity" if "perplexity" in row.curve else "top1"
    own = [value for value in row.curve.get(name, []) if value is not None]
    if not own:
        return log_quality(row)
    value = log(max(own[int(EARLY * len(own))], 1e-9))
    return -value if name == "perplexity" else value


def panels(label: Callable[[Row], str], colours: Mapping[str, str], baseline: str) -> Quality:
    """Return accuracy over steps, and at the end over that of the baseline, a panel for each network.

    A network on which no method of the paper ran but the baseline has an empty panel, even where others ran.
    """
    own = colours.keys() - {baseline, AUTO}

    def drawn(rows: list[Row]) -> list[Panel]:
        found = {title: task_of(tasks(rows, label), word) for word, title in PANELS.values()}
        known = {title: task if task and own & task.methods.keys() else None for title, task in found.items()}
        return [Panel(title, task, colours, baseline) for title, task in known.items()]

    return Quality(drawn)


ONE_NUMBER = (
    "The paper prints the accuracy of ACP-SGD alone (94.1 and 94.6 %), so that no gap of its own stands beside ours."
)
FIG6 = long_figure(
    "acpsgd.fig6",
    "Accuracy of S-SGD, Power-SGD and ACP-SGD",
    panels(method, COLOURS, "S-SGD"),
    Judged(_fig6_verdicts, cost=COST),
    notes=(ONE_NUMBER,),
)


# ---- Fig. 7: without error feedback, without reuse -------------------------------------------------------------------

VARIANTS = {"ACP-SGD": "#0072b2", "no error feedback": "#d55e00", "no reuse": "#e69f00"}


def variant(row: Row) -> str:
    """Return the variant that a row ran, "" for other methods."""
    if row.case.scheme != "acpsgd" or row.case.scheme_options:
        return ""
    if "warm_start" in (row.case.compressor or "").lower():
        return "no reuse"
    if row.case.compressor not in (None, "acpsgd"):
        return ""
    return "no error feedback" if row.case.memory in (None, "none") else "ACP-SGD"


def _fig7_verdicts(rows: list[Row]) -> list[Verdict]:
    """Return whether each mechanism is missed clearly, beyond the noise of seeds."""
    found = []
    every = [task for word, _ in PANELS.values() if (task := task_of(tasks(rows, variant), word))]
    for claim, without in (("acpsgd.fig7.ef", "no error feedback"), ("acpsgd.fig7.reuse", "no reuse")):
        known = [task for task in every if task.knows("ACP-SGD", without)]
        pairs = gaps(known, ("ACP-SGD", without, "clearly above"))
        missing = {} if pairs else {f"ACP-SGD with {without}": there_is(every, without)}
        found.append(judged_order(claim, pairs, known, missing))
    return found


FIG7 = long_figure(
    "acpsgd.fig7",
    "ACP-SGD without error feedback or reuse",
    panels(variant, VARIANTS, "ACP-SGD"),
    Judged(_fig7_verdicts, cost=COST),
)
