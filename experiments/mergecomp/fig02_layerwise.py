"""MergeComp Fig. 2: scaling factors of layer-wise compression, ResNet50 on CIFAR10."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.judging import complete, held
from experiments.common.evaluation.mergecomp_panels import GPUS, LABELS, factor, factor_panels
from experiments.common.evaluation.row_steps import NoRow, Rule, by_calibration, judge_orders
from experiments.common.evaluation.step_plots import draw_panels
from experiments.common.validation.published_mergecomp import Setup
from experiments.common.validation.published_steps import Steps
from ssfx.core.rows import Row

NAME = "mergecomp.fig2"
TITLE = "Scaling factors of layer-wise compression"
NEEDS = {"experiment": "mergecomp_clusters", "calibration": bool}
COMMAND = "ssfx run experiment=mergecomp_clusters"

WORKLOAD = ("ResNet50", "CIFAR10")
SLOWEST = ("topk", "dgc", "onebit")


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write scaling factors over GPUs, a panel for each network and calibration."""
    return draw_panels(NAME, factor_panels(rows, "layerwise", *WORKLOAD), rows, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return verdicts on the loss against FP32 and on how many compressors lose."""
    found = judge_orders(rows, ORDERS)
    for calibration, steps in by_calibration(rows).items():
        try:
            lost = [1 - _relative(steps, name, gpus) for name in SLOWEST for gpus in GPUS]
        except NoRow:
            continue
        found.append(held("mergecomp.fig2.drop30", (min(lost), max(lost)), source="simulated", calibration=calibration))
    return complete(NAME, found, COMMAND)


def _relative(steps: Steps, compressor: str, gpus: int) -> float:
    at = Setup(*WORKLOAD, gpus, "PCIe")
    return factor(steps, "layerwise", compressor, at) / factor(steps, "fp32", "", at)


def _most_worse(steps: Steps) -> tuple[bool, str]:
    worse = [name for name in LABELS if _relative(steps, name, max(GPUS)) < 1]
    return len(worse) > len(LABELS) / 2, f"{len(worse)} of {len(LABELS)} slower on {max(GPUS)} GPUs over PCIe"


ORDERS: dict[str, Rule] = {"mergecomp.fig2.most_worse": _most_worse}
