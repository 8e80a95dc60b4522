"""ACP-SGD Fig. 7: accuracy without error feedback and without reuse of the previous factor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.gaps import COMMAND as LONG_COMMAND
from experiments.common.evaluation.gaps import COST, LONG, Gap, Wanted, judged_order, no_row, task_of, tasks
from experiments.common.evaluation.judging import complete
from experiments.common.evaluation.quality_panels import Panel, draw_quality
from ssfx.core.rows import Row

NAME = "acpsgd.fig7"
TITLE = "ACP-SGD without error feedback or reuse"
NEEDS = {"experiment": LONG, "calibration": ""}
COMMAND = LONG_COMMAND

COLOURS = {"ACP-SGD": "#0072b2", "no error feedback": "#d55e00", "no reuse": "#e69f00"}
PANELS = {"vgg": "VGG on CIFAR-10", "resnet": "ResNet on CIFAR-10"}
"""Networks of the paper's kinds: the word in the name of ours, and our title."""


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write accuracy over steps, and at the end over that of ACP-SGD, a panel for each network."""
    found = tasks(rows, method)
    panels = [Panel(title, task_of(found, word), COLOURS, "ACP-SGD") for word, title in PANELS.items()]
    return draw_quality(NAME, TITLE, panels, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return whether each mechanism is missed clearly, beyond the noise of seeds."""
    found = []
    every = [task for word in PANELS if (task := task_of(tasks(rows, method), word))]
    for claim, without in (("ef", "no error feedback"), ("reuse", "no reuse")):
        known = [task for task in every if task.knows("ACP-SGD", without)]
        pairs: list[tuple[str, Gap, Wanted]] = [
            (f"{task.model}: ACP-SGD over {without}", task.gap("ACP-SGD", without), "clearly above") for task in known
        ]
        words = "; ".join(task.words for task in known)
        name = f"{NAME}.{claim}"
        found.append(judged_order(name, pairs, words) if pairs else no_row(name, [f"ACP-SGD with {without}"]))
    return complete(NAME, found, COMMAND, cost=COST)


def method(row: Row) -> str:
    """Return the variant that a row ran, "" for other methods."""
    if row.case.scheme != "acpsgd" or row.case.scheme_options:
        return ""
    if "warm_start" in (row.case.compressor or "").lower():
        return "no reuse"
    if row.case.compressor not in (None, "acpsgd"):
        return ""
    return "no error feedback" if row.case.memory in (None, "none") else "ACP-SGD"
