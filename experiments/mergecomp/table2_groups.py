"""MergeComp Table 2: speed with up to Y groups over that of a single group, ResNet101."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from ssfx.claims.verdicts import Verdict
from ssfx.evaluation.judging import complete
from ssfx.evaluation.row_steps import Rule, judge_orders, judge_predictions, values_by_calibration
from ssfx.figures.tables import draw_table
from ssfx.results.rows import Row
from ssfx.validation.published_mergecomp import ratios
from ssfx.validation.published_steps import Prediction, Steps

NAME = "mergecomp.table2"
TITLE = "Speed over that of one group, ResNet101"
CLAIMS = (NAME,)
NEEDS = {"experiment": "mergecomp_groups", "calibration": bool}
COMMAND = "ssfx run experiment=mergecomp_groups"


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write the paper's table with our ratios beside its own."""
    table = []
    for one in predictions():
        name, y = one.label.split(" Y=")
        ours = {f"simulated_{key}": round(value, 3) for key, value in values_by_calibration(rows, one.value).items()}
        gpus = int(one.panel.rpartition("x")[2])
        table.append({"compressor": name, "Y": y, "GPUs": gpus, "paper": round(one.stated(one.claim), 3), **ours})
    columns = {
        "compressor": "compressor",
        "Y": "Y",
        "GPUs": "GPUs",
        "paper": "paper",
        "simulated_nominal": "ssfx, simulated\nnominal times",
        "simulated_published": "ssfx, simulated\npublished times",
    }
    origin = "Simulated steps on v100 devices over PCIe; no GPU was used. Nothing was fitted to the paper's table."
    return draw_table(NAME, TITLE, columns, table, out, origin=origin, used=rows)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return verdicts on every cell and on what the text says of them."""
    found = [*judge_predictions(rows, [*predictions(), *EXTRA]), *judge_orders(rows, ORDERS)]
    return complete(NAME, found, COMMAND)


def predictions() -> list[Prediction]:
    """Return the cells of the table."""
    return [one for one in ratios() if one.claim.startswith(f"{NAME}.")]


def _cells(steps: Steps) -> dict[tuple[str, int, int], float]:
    cells = {}
    for one in predictions():
        name, y = one.label.split(" Y=")
        cells[name, int(y), int(one.panel.rpartition("x")[2])] = one.value(steps)
    return cells


def _grows(steps: Steps) -> tuple[bool, str]:
    cells = _cells(steps)
    lines = sorted({key[:2] for key in cells})
    rising = [all(a <= b + SMALL for a, b in pairwise([cells[*line, g] for g in (2, 4, 8)])) for line in lines]
    return all(rising), f"grows or stays in {sum(rising)} of {len(rising)} lines"


def _y3(steps: Steps) -> tuple[bool, str]:
    cells = _cells(steps)
    apart = max(abs(value - cells[name, 2, gpus]) for (name, y, gpus), value in cells.items() if y == 3)
    return apart <= ALIKE, f"apart by {apart:.3f} at most; Y = 4 was not simulated"


SMALL, ALIKE = 0.005, 0.02
"""Below the last printed digit; and the largest difference that the paper itself has between Y = 2 and 3, doubled."""
ORDERS: dict[str, Rule] = {"mergecomp.table2.grows": _grows, "mergecomp.table2.y3": _y3}
EXTRA: list[Prediction] = []
