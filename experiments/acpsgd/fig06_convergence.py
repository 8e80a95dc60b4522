"""ACP-SGD Fig. 6: accuracy over training of S-SGD, Power-SGD and ACP-SGD."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from pathlib import Path
from statistics import fmean

from experiments.common.claims.verdicts import Outcome, Verdict
from experiments.common.evaluation.gaps import COMMAND as LONG_COMMAND
from experiments.common.evaluation.gaps import (
    COST,
    LONG,
    Gap,
    Task,
    Wanted,
    judged_order,
    log_quality,
    no_row,
    task_of,
    tasks,
    usual,
)
from experiments.common.evaluation.judging import complete, number, says
from experiments.common.evaluation.quality_curves import SCALE, curve
from experiments.common.evaluation.quality_panels import Panel, draw_quality
from experiments.common.figures.auto import AUTO, COLOUR
from ssfx.core.rows import Row

NAME = "acpsgd.fig6"
TITLE = "Accuracy of S-SGD, Power-SGD and ACP-SGD"
NEEDS = {"experiment": LONG, "calibration": ""}
COMMAND = LONG_COMMAND

METHODS = {"ddp": "S-SGD", "powersgd": "Power-SGD", "acpsgd": "ACP-SGD"}
COLOURS = {"S-SGD": "#5f5f5f", "Power-SGD": "#a8324a", "ACP-SGD": "#0072b2", AUTO: COLOUR}
PANELS = {"vgg16": ("vgg", "VGG on CIFAR-10"), "resnet18": ("resnet", "ResNet on CIFAR-10")}
"""The paper's networks: the word in the name of ours, and our title."""
CLOSE = 0.005
"""Difference of accuracies to S-SGD that the ledger allows ACP-SGD at a reduced scale."""
EARLY = 0.1
"""Part of the training that counts as early."""
NOTES = (
    "The paper prints the accuracy of ACP-SGD alone (94.1 and 94.6 %), so that no gap of its own stands beside ours.",
)


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write accuracy over steps, and at the end over that of S-SGD, a panel for each network."""
    found = tasks(rows, method)
    panels = [Panel(title, task_of(found, word), COLOURS, "S-SGD") for word, title in PANELS.values()]
    return draw_quality(NAME, TITLE, panels, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return verdicts on the order of final and early accuracies, and on gaps to S-SGD; levels do not compare."""
    own = [row for row in rows if any(word in row.case.model for word, _ in PANELS.values())]
    final, early = tasks(own, method), tasks([row for row in own if curve(row)], method, _early)
    found = []
    for key, (word, _) in PANELS.items():
        task = task_of(final, word)
        if task and task.knows("ACP-SGD", "S-SGD"):
            found.append(_gap(f"{NAME}.{key}", task))
        else:
            found.append(no_row(f"{NAME}.{key}", [f"ACP-SGD on {key}"]))
    parity = _pairs(final, [("ACP-SGD", "S-SGD", "equal"), ("ACP-SGD", "Power-SGD", "equal")])
    slower = _pairs(early, [("ACP-SGD", "S-SGD", "below"), ("Power-SGD", "S-SGD", "below")])
    for claim, pairs, trained in (("parity", parity, final), ("early", slower, early)):
        words = "; ".join(one.words for one in trained if one.knows(*METHODS.values()))
        missing = [title for word, title in PANELS.values() if not task_of(trained, word)]
        found.append(judged_order(f"{NAME}.{claim}", pairs, words, missing) if pairs else no_row(f"{NAME}.{claim}"))
    return complete(NAME, found, COMMAND, cost=COST)


def method(row: Row) -> str:
    """Return what the paper calls a row's method, scheme=auto as it is, "" for others."""
    plain = row.case.compressor in (None, row.case.scheme) and usual(row)
    return AUTO if row.case.scheme == AUTO else METHODS.get(row.case.scheme, "") if plain else ""


def _pairs(found: Sequence[Task], wanted: Sequence[tuple[str, str, Wanted]]) -> list[tuple[str, Gap, Wanted]]:
    return [
        (f"{task.model}: {one} over {other}", task.gap(one, other), word)
        for task in found
        if task.knows(*METHODS.values())
        for one, other, word in wanted
    ]


def _gap(claim: str, task: Task) -> Verdict:
    """Return whether ACP-SGD loses less than CLOSE in accuracy, which the noise may leave open."""
    dense, ours = (
        fmean(float(row.metrics["top1"] or 0.0) for row in task.methods[name]) for name in ("S-SGD", "ACP-SGD")
    )
    gap = task.gap("ACP-SGD", "S-SGD")
    near = abs(ours - dense) < CLOSE
    decided = gap.word in ("above", "below") or (near and gap.half is not None and dense * gap.half < CLOSE)
    outcome: Outcome | bool = near if decided else "not comparable"
    text = f"{100 * ours:.1f} percent, {100 * (ours - dense):+.2f} points to S-SGD; {gap}"
    stated = f"the paper's {number(claim):g} percent is of another network"
    reason = f"Reduced scale ({task.words}; {SCALE}): a gap below {100 * CLOSE:g} points, not the level, as {stated}."
    return says(claim, outcome, text, reason, source="measured")


def _early(row: Row) -> float:
    """Return the log of accuracy after EARLY of the training, of the inverse where lower is better."""
    name = "perplexity" if "perplexity" in curve(row) else "top1"
    own = [value for value in curve(row).get(name, []) if value is not None]
    if not own:
        return log_quality(row)
    value = log(max(own[int(EARLY * len(own))], 1e-9))
    return -value if name == "perplexity" else value
