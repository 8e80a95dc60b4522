"""MergeComp Fig. 4: scaling factors of merged compression, ResNet50 on CIFAR10."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.judging import complete
from experiments.common.evaluation.mergecomp_panels import LABELS, draw_merged, factor, factors_of, ratios_of
from experiments.common.evaluation.row_steps import Rule, judge_orders, judge_predictions
from experiments.common.validation.published_mergecomp import Setup
from experiments.common.validation.published_steps import Prediction, Steps
from ssfx.core.rows import Row

NAME = "mergecomp.fig4"
TITLE = "Scaling factors of MergeComp, ResNet50 on CIFAR10"
NEEDS = {"experiment": "mergecomp_clusters", "calibration": bool}
COMMAND = "ssfx run experiment=mergecomp_clusters"

WORKLOAD = ("ResNet50", "CIFAR10")
VISIBLE = 0.1
"""A smaller relative difference counts as none."""


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write scaling factors over GPUs, and the gains and factors that the text prints."""
    return draw_merged(NAME, WORKLOAD, rows, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return verdicts on the gains, scaling factors and orderings of the text."""
    own = [*ratios_of(NAME), *factors_of(NAME), EXTRA]
    return complete(NAME, [*judge_predictions(rows, own), *judge_orders(rows, ORDERS)], COMMAND)


def _headline(steps: Steps) -> float:
    at = Setup(*WORKLOAD, 8, "PCIe")
    return max(factor(steps, "Y=2", name, at) / factor(steps, "layerwise", name, at) for name in LABELS)


def _topk(steps: Steps) -> tuple[bool, str]:
    at = Setup(*WORKLOAD, 8, "PCIe")
    ratio = factor(steps, "Y=2", "topk", at) / factor(steps, "layerwise", "topk", at)
    return abs(ratio - 1) < VISIBLE, f"{ratio:.2f}x of layer-wise Top-k"


def _layerwise_fp16(steps: Steps) -> tuple[bool, str]:
    at = Setup(*WORKLOAD, 8, "NVLink")
    ratio = factor(steps, "layerwise", "fp16", at) / factor(steps, "fp32", "", at)
    return ratio < 1, f"{ratio:.2f}x of FP32"


ORDERS: dict[str, Rule] = {"mergecomp.fig4.topk": _topk, "mergecomp.fig4.nv.fp16_layer": _layerwise_fp16}
EXTRA = Prediction("mergecomp.headline.max", "", "largest gain", _headline)
