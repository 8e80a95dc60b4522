"""ACP-SGD Fig. 6: accuracy over training of S-SGD, Power-SGD and ACP-SGD."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ssfx.claims.verdicts import Verdict
from ssfx.evaluation.judging import absent, complete
from ssfx.evaluation.quality_curves import SCALE, compared, curve, draw_curves, grouped, judged_order, quality, values
from ssfx.figures.auto import AUTO, COLOUR, LABEL
from ssfx.results.rows import Row

NAME = "acpsgd.fig6"
TITLE = "Accuracy of S-SGD, Power-SGD and ACP-SGD"
NEEDS = {"experiment": "time_to_quality", "calibration": ""}
COMMAND = "ssfx run experiment=time_to_quality"

METHODS = {"ddp": "S-SGD", "powersgd": "Power-SGD", "acpsgd": "ACP-SGD"}
SHOWN = {**METHODS, AUTO: LABEL}
COLOURS = {"S-SGD": "#5f5f5f", "Power-SGD": "#a8324a", "ACP-SGD": "#0072b2", LABEL: COLOUR}
TASKS = {"vgg": "VGG", "resnet": "ResNet"}
EARLY = 0.1
"""Part of the training that counts as early."""


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write accuracy over steps, a panel for each network, with the range of the seeds."""
    return draw_curves(NAME, shown(rows), COLOURS, quality, rows, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return verdicts on the order of final and early accuracies; levels are of other networks."""
    panels = shown(rows)
    found, finals, early = [], [], []
    for model, methods in panels.items():
        if set(METHODS.values()) <= set(methods):
            last = {label: values(methods[label], "top1") for label in methods}
            finals += [(model, *compared(last["ACP-SGD"], last[other])) for other in ("S-SGD", "Power-SGD")]
            first = {label: [_early(row) for row in methods[label]] for label in methods}
            early += [(model, *compared(first[name], first["S-SGD"])) for name in ("ACP-SGD", "Power-SGD")]
    for key, task in (("vgg16", "vgg"), ("resnet18", "resnet")):
        own = [
            value
            for model, methods in panels.items()
            if task in model
            for value in values(methods.get("ACP-SGD", []), "top1")
        ]
        if own:
            shown_value = f"{100 * sum(own) / len(own):.1f} percent"
            found.append(
                absent(f"{NAME}.{key}", f"another network and data set: {SCALE}", "not comparable", shown_value)
            )
    for claim, pairs, wanted in (("parity", finals, "equal"), ("early", early, "below")):
        if pairs:
            found.append(judged_order(f"{NAME}.{claim}", [(*pair, wanted) for pair in pairs]))
    return complete(NAME, found, COMMAND, cost="minutes on two cores")


def shown(rows: list[Row]) -> dict[str, dict[str, list[Row]]]:
    """Return model -> method -> rows."""
    own = [row for row in rows if row.case.scheme in SHOWN and any(task in row.case.model for task in TASKS)]
    return grouped(own, lambda row: SHOWN[row.case.scheme])


def _early(row: Row) -> float:
    own = [value for value in curve(row).get(quality(row), []) if value is not None]
    return own[int(EARLY * len(own))] if own else 0.0
