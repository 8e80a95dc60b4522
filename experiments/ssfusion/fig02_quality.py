"""SSFusion Fig. 2, its quality: after long training, by how many tensors are compressed jointly."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.gaps import COMMAND as LONG_COMMAND
from experiments.common.evaluation.gaps import (
    COST,
    LONG,
    Gap,
    Wanted,
    judged_gaps,
    judged_order,
    no_row,
    task_of,
    tasks,
)
from experiments.common.evaluation.judging import number
from experiments.common.evaluation.quality_panels import Panel, draw_quality
from ssfx.core.rows import Row

NAME = "ssfusion.fig2.quality"
TITLE = "Fig. 2: quality by how many tensors are compressed jointly"
CLAIMS = ("ssfusion.fig2",)
NEEDS = {"experiment": LONG, "calibration": ""}
COMMAND = LONG_COMMAND

PANELS = {"a": ("vgg", "acc", "ResNet-152", "(a) VGG on CIFAR-10, paper: ResNet-152"),
          "b": ("bert", "f1", "BERT-large", "(b) BERT on questions")}  # fmt: skip
"""The paper's panels: the word in the name of our network, the quality, the network that ours stands for, our title."""
NOTES = (
    "No long run is of a small ResNet: a VGG on the same task stands for ResNet-152. What is judged is the sign and "
    "the rank of the gap to tensors compressed one by one, not its level.",
)
PER_TENSOR, ALL = "per-tensor", 100
DEGREES = (20, 40, 60, 80, ALL)
COLOURS = {PER_TENSOR: "#5f5f5f", "20 %": "#9ecae1", "40 %": "#6baed6", "60 %": "#4292c6", "80 %": "#2171b5",
           "100 %": "#084594"}  # fmt: skip
DENSITY = 0.01
"""The paper's."""


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write quality over steps and at the end, by fusion degree, a panel for each of the paper's."""
    found = tasks(rows, method)
    panels = []
    for panel, (word, _, _, title) in PANELS.items():
        stated = printed(panel)
        colours = {name: COLOURS[name] for name in COLOURS if name in stated or name == PER_TENSOR}
        task = task_of(found, word)
        colours |= {name: COLOURS[name] for name in COLOURS if task and name in task.methods}
        panels.append(Panel(title, task, dict(sorted(colours.items(), key=_degree)), PER_TENSOR, stated))
    return draw_quality(NAME, TITLE, panels, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return sign and rank of the gap to tensors one by one, and whether quality falls with the degree."""
    every = [one for one in tasks(rows, method) if one.knows(PER_TENSOR)]
    found = []
    for panel, (word, quality, paper, _) in PANELS.items():
        task = task_of(every, word)
        stated = printed(panel)
        claims = {name: f"ssfusion.fig2.{panel}.fd{name.removesuffix(' %')}.{quality}" for name in stated}
        given = judged_gaps([task] if task else [], claims, stated, PER_TENSOR, paper)
        judged = {one.claim for one in given}
        found += [*given, *(no_row(claim, [f"{name} of the tensors joined in place of {paper}"])
                            for name, claim in claims.items() if claim not in judged)]  # fmt: skip
    if task := task_of(every, PANELS["a"][0]):
        own = [float(row.metrics["top1"] or 0.0) for row in task.methods[PER_TENSOR]]
        why = f"the level of {task.words} in place of {PANELS['a'][2]}"
        found.append(Verdict("ssfusion.fig2.a.per.acc", "not comparable", f"{100 * fmean(own):.1f} percent", "measured",
                             "", why, COMMAND, COST))  # fmt: skip
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


def finding(rows: list[Row]) -> str:
    """Return how quality differs from that of tensors one by one, for each task and degree."""
    parts = [
        f"{task.model}, {name} over {PER_TENSOR} {task.gap(name, PER_TENSOR)}"
        for task in tasks(rows, method)
        for name in task.methods
        if name != PER_TENSOR and PER_TENSOR in task.methods
    ]
    return "; ".join(parts) or "no long row of several fusion degrees"


def method(row: Row) -> str:
    """Return how many tensors a row compressed jointly, in words; "" for other runs."""
    case = row.case
    if case.compressor != "dgc" or case.density != DENSITY or case.memory not in (None, "residual"):
        return ""
    options = dict(case.scheme_options)
    degree = int(options.pop("fusion_degree", ALL))
    if options or case.scheme not in ("per_tensor", "fused_all"):
        return ""
    return PER_TENSOR if case.scheme == "per_tensor" else f"{degree} %"


def printed(panel: str) -> dict[str, float]:
    """Return the quality at each degree that the paper prints, over that of tensors one by one."""
    _, quality, _, _ = PANELS[panel]
    start = f"ssfusion.fig2.{panel}"
    degrees = (20, ALL) if panel == "a" else (ALL,)
    return {f"{d} %": number(f"{start}.fd{d}.{quality}") / number(f"{start}.per.{quality}") for d in degrees}


def _degree(item: tuple[str, str]) -> int:
    return 0 if item[0] == PER_TENSOR else int(item[0].removesuffix(" %"))
