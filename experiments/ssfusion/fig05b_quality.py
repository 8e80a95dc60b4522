"""SSFusion Fig. 5(b): quality of selective sparsification against per-tensor, multi-tensor and dense training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.gaps import COMMAND as LONG_COMMAND
from experiments.common.evaluation.gaps import (
    LONG,
    Gap,
    Wanted,
    judged_gaps,
    judged_order,
    no_row,
    task_of,
    tasks,
    usual,
)
from experiments.common.evaluation.judging import number
from experiments.common.evaluation.quality_panels import Panel, draw_quality
from ssfx.core.rows import Row

NAME = "ssfusion.fig5b"
TITLE = "Fig. 5(b): quality with per-tensor, multi-tensor and selective sparsification"
CLAIMS = ("ssfusion.fig5",)
NEEDS = {"experiment": LONG, "calibration": ""}
COMMAND = LONG_COMMAND

METHODS = {"ddp": "dense", "per_tensor": "per-tensor", "fused_all": "multi-tensor", "ssfusion_naive": "selective"}
COLOURS = {"multi-tensor": "#a8324a", "selective": "#0072b2", "per-tensor": "#e69f00", "dense": "#5f5f5f"}
DENSITY = 0.01
"""The paper's."""
PANELS = {
    "resnet152": ("vgg", "ResNet-152", "VGG on CIFAR-10, paper: ResNet-152"),
    "gpt2large": ("lstm", "GPT2-large", "LSTM on WikiText-2, paper: GPT2-large"),
    "bertlarge": ("bert", "BERT-large", "BERT on questions"),
}
"""Gains that the paper prints: the word in the name of our network, the network that ours stands for, our title."""
NOTES = (
    "A VGG stands for ResNet-152 and an LSTM for GPT2-large: the same task on other networks, of which there are long "
    "runs. What is judged is the sign of a gap, not its level.",
)


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write quality over steps and at the end over that of multi-tensor sparsification, a panel for each task."""
    found = tasks(rows, method)
    panels = [
        Panel(title, task_of(found, word), COLOURS, "multi-tensor", {"selective": 1 + number(_claim(key))})
        for key, (word, _, title) in PANELS.items()
    ]
    return draw_quality(NAME, TITLE, panels, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return whether selective quality equals that of per-tensor and of dense training, and the sign of its gains."""
    every = tasks(rows, method)
    found: list[Verdict] = []
    pairs: list[tuple[str, Gap, Wanted]] = []
    words = []
    for key, (word, paper, _) in PANELS.items():
        own = [one for one in every if word in one.model and one.knows("selective")]
        printed = {"selective": 1 + number(_claim(key)), "multi-tensor": 1.0}
        given = judged_gaps(own, {"selective": _claim(key)}, printed, "multi-tensor", paper)
        found += given or [
            no_row(
                _claim(key),
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


def finding(rows: list[Row]) -> str:
    """Return how selective quality differs from that of multi-tensor sparsification, for each task."""
    parts = [
        f"{task.model}: selective over multi-tensor {task.gap('selective', 'multi-tensor')}"
        for task in tasks(rows, method)
        if {"selective", "multi-tensor"} <= set(task.methods)
    ]
    return "; ".join(parts) or "no long row of selective and multi-tensor sparsification"


def method(row: Row) -> str:
    """Return how a row's tensors were sparsified, "" for ways that the figure does not show."""
    case = row.case
    same = case.compressor in (None, "dgc") and case.density in (None, DENSITY) and usual(row)
    return METHODS.get(case.scheme, "") if same else ""


def _claim(key: str) -> str:
    return f"ssfusion.fig5.{key}.gain"
