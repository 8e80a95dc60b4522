"""ACP-SGD Fig. 6: accuracy over training of S-SGD, Power-SGD and ACP-SGD."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from experiments.common.claims.verdicts import Outcome, Verdict
from experiments.common.evaluation.gaps import LONG, longest, trained
from experiments.common.evaluation.judging import complete, says
from experiments.common.evaluation.quality_curves import (
    SCALE,
    compared,
    curve,
    draw_curves,
    grouped,
    judged_order,
    quality,
    values,
)
from experiments.common.figures.auto import AUTO, COLOUR, LABEL
from ssfx.core.rows import Row

NAME = "acpsgd.fig6"
TITLE = "Accuracy of S-SGD, Power-SGD and ACP-SGD"
NEEDS = {"experiment": ("time_to_quality", LONG).__contains__, "calibration": ""}
COMMAND = "ssfx run experiment=time_to_quality"

METHODS = {"ddp": "S-SGD", "powersgd": "Power-SGD", "acpsgd": "ACP-SGD"}
SHOWN = {**METHODS, AUTO: LABEL}
COLOURS = {"S-SGD": "#5f5f5f", "Power-SGD": "#a8324a", "ACP-SGD": "#0072b2", LABEL: COLOUR}
TASKS = {"vgg": "VGG", "resnet": "ResNet"}
CLOSE = 0.005
"""Difference of accuracies to S-SGD that the ledger allows ACP-SGD at a reduced scale."""
EARLY = 0.1
"""Part of the training that counts as early."""


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write accuracy over steps, a panel for each network, with the range of the seeds."""
    return draw_curves(NAME, shown(rows), COLOURS, quality, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return verdicts on the order of final and early accuracies, and on gaps to S-SGD; levels do not compare."""
    panels = shown(rows)
    found, finals, early = [], [], []
    for model, methods in panels.items():
        if set(METHODS.values()) <= set(methods):
            last = {label: values(methods[label], "top1") for label in methods}
            finals += [(model, *compared(last["ACP-SGD"], last[other])) for other in ("S-SGD", "Power-SGD")]
            first = {label: [_early(row) for row in methods[label]] for label in methods}
            early += [(model, *compared(first[name], first["S-SGD"])) for name in ("ACP-SGD", "Power-SGD")]
    for key, task in (("vgg16", "vgg"), ("resnet18", "resnet")):
        for model, methods in panels.items():
            own, dense = (values(methods.get(name, []), "top1") for name in ("ACP-SGD", "S-SGD"))
            if task in model and own and dense:
                gap = fmean(own) - fmean(dense)
                text = f"{100 * fmean(own):.1f} percent, {100 * gap:+.2f} points to S-SGD"
                reason = f"Reduced scale ({trained(methods['ACP-SGD'])}, {SCALE}): the gap to S-SGD, not the level."
                unclear = abs(gap) >= CLOSE and compared(own, dense)[0] in ("equal", "unknown")
                close: Outcome | bool = "not comparable" if unclear else abs(gap) < CLOSE
                found.append(says(f"{NAME}.{key}", close, text, reason, source="measured"))
                break
    for claim, pairs, wanted in (("parity", finals, "equal"), ("early", early, "below")):
        if pairs:
            found.append(judged_order(f"{NAME}.{claim}", [(*pair, wanted) for pair in pairs]))
    return complete(NAME, found, COMMAND, cost="minutes on two cores")


def shown(rows: list[Row]) -> dict[str, dict[str, list[Row]]]:
    """Return model -> method -> rows, of each task the longest training that has all methods."""
    own = [
        row for task in TASKS for row in longest([row for row in rows if task in row.case.model], _label, set(METHODS))
    ]
    return grouped([row for row in own if row.case.scheme in SHOWN], lambda row: SHOWN[row.case.scheme])


def _label(row: Row) -> str:
    return row.case.scheme if row.case.scheme in SHOWN and not row.case.scheme_options else ""


def _early(row: Row) -> float:
    own = [value for value in curve(row).get(quality(row), []) if value is not None]
    return own[int(EARLY * len(own))] if own else 0.0
