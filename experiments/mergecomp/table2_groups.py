"""MergeComp Table 2: speed with up to Y groups over that of a single group, ResNet101."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from experiments.common.claims.verdicts import Outcome, Verdict
from experiments.common.evaluation.judging import complete
from experiments.common.evaluation.mergecomp_panels import draw_groups, ratios_of
from experiments.common.evaluation.row_steps import Rule, judge_orders, judge_predictions
from experiments.common.validation.published_steps import Steps
from ssfx.core.rows import Row

NAME = "mergecomp.table2"
TITLE = "Speed over that of one group, ResNet101"
NEEDS = {"experiment": "mergecomp_groups", "calibration": bool}
COMMAND = "ssfx run experiment=mergecomp_groups"


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write the paper's table with our ratios next to its own."""
    return draw_groups(NAME, TITLE, rows, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return verdicts on every cell and on what the text says of them."""
    found = [*judge_predictions(rows, ratios_of(NAME)), *judge_orders(rows, ORDERS)]
    return complete(NAME, found, COMMAND)


def _cells(steps: Steps) -> dict[tuple[str, int, int], float]:
    cells = {}
    for one in ratios_of(NAME):
        name, y = one.label.split(" Y=")
        cells[name, int(y), int(one.panel.rpartition("x")[2])] = one.value(steps)
    return cells


def _grows(steps: Steps) -> tuple[bool, str]:
    cells = _cells(steps)
    lines = sorted({key[:2] for key in cells})
    series = [[cells[*line, gpus] for gpus in (2, 4, 8)] for line in lines]
    # A method without any effect stays, too: from the fewest to the most GPUs it must grow.
    rising = [all(a <= b + SMALL for a, b in pairwise(one)) and one[-1] > one[0] + SMALL for one in series]
    return all(rising), f"never falls, and grows from 2 to 8 GPUs, in {sum(rising)} of {len(rising)} lines"


def _y3(steps: Steps) -> tuple[Outcome | bool, str]:
    """Return whether Y = 3 is about like Y = 2: one half of the claim, whose other half is Y = 4."""
    cells = _cells(steps)
    apart = max(abs(value - cells[name, 2, gpus]) for (name, y, gpus), value in cells.items() if y == 3)
    return "partly" if apart <= ALIKE else False, f"apart by {apart:.3f} at most; Y = 4 was not simulated"


SMALL, ALIKE = 0.005, 0.02
"""Below the last printed digit; and the largest difference that the paper itself has between Y = 2 and 3, doubled."""
ORDERS: dict[str, Rule] = {"mergecomp.table2.grows": _grows, "mergecomp.table2.y3": _y3}
