"""ACP-SGD Fig. 7: accuracy without error feedback and without reuse of the previous factor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.gaps import LONG, longest
from experiments.common.evaluation.judging import complete
from experiments.common.evaluation.quality_curves import compared, draw_curves, grouped, judged_order, quality, values
from ssfx.core.rows import Row

NAME = "acpsgd.fig7"
TITLE = "ACP-SGD without error feedback or reuse"
NEEDS = {"experiment": ("acpsgd_ablation", LONG).__contains__, "scheme": "acpsgd", "calibration": ""}
COMMAND = "ssfx run experiment=acpsgd_ablation"

COLOURS = {"ACP-SGD": "#0072b2", "no error feedback": "#d55e00", "no reuse": "#e69f00"}


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write accuracy over steps, a panel for each network, with the range of the seeds."""
    return draw_curves(NAME, grouped(longest(rows, method, set(COLOURS)), method), COLOURS, quality, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return whether each mechanism is missed clearly, beyond the spread of the seeds."""
    found = []
    for claim, without in (("ef", "no error feedback"), ("reuse", "no reuse")):
        pairs = [
            (model, *compared(values(methods["ACP-SGD"], "top1"), values(methods[without], "top1")))
            for model, methods in grouped(longest(rows, method, set(COLOURS)), method).items()
            if {"ACP-SGD", without} <= set(methods)
        ]
        if pairs:
            found.append(judged_order(f"{NAME}.{claim}", [(*pair, "above") for pair in pairs]))
    return complete(NAME, found, COMMAND, cost="minutes on two cores")


def method(row: Row) -> str:
    """Return the variant that a row ran."""
    if "warm_start" in (row.case.compressor or "").lower():
        return "no reuse"
    return "no error feedback" if row.case.memory in (None, "none") else "ACP-SGD"
