"""MergeComp Table 3: gain of the searched two groups over an even split, ResNet101 (ratio of times)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ssfx.claims.verdicts import Verdict
from ssfx.evaluation.judging import complete
from ssfx.evaluation.row_steps import Rule, judge_orders, judge_predictions, values_by_calibration
from ssfx.figures.tables import draw_table
from ssfx.results.rows import Row
from ssfx.validation.published_mergecomp import ratios
from ssfx.validation.published_steps import Prediction, Steps

NAME = "mergecomp.table3"
TITLE = "Gain over an even split, ResNet101"
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


def _largest(steps: Steps) -> float:
    return max(one.value(steps) for one in predictions())


ORDERS: dict[str, Rule] = {}
EXTRA = [Prediction("mergecomp.table3.max", "", "largest gain", _largest)]
