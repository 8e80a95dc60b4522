"""SSFusion Fig. 5(b): quality of selective sparsification against per-tensor, multi-tensor and dense training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.gaps import LONG, Finals, judged_gaps, longest, trained
from experiments.common.evaluation.judging import number
from experiments.common.evaluation.quality_curves import compared, draw_curves, grouped, judged_order, quality, values
from ssfx.core.rows import Row

NAME = "ssfusion.fig5b"
TITLE = "Fig. 5(b): quality with per-tensor, multi-tensor and selective sparsification"
CLAIMS = ("ssfusion.fig5",)
NEEDS = {"experiment": ("time_to_quality", LONG).__contains__, "calibration": ""}

METHODS = {"ddp": "dense", "per_tensor": "per-tensor", "fused_all": "multi-tensor", "ssfusion_naive": "selective"}
DENSITY = 0.05
"""The one that all of these methods were run at."""
GAINS = {"resnet152": "resnet", "bertlarge": "bert", "gpt2large": "gpt2"}
"""Gains of selective over multi-tensor sparsification that the paper prints, and the family of models."""
COLOURS = {"dense": "#5f5f5f", "per-tensor": "#e69f00", "multi-tensor": "#a8324a", "selective": "#0072b2"}


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write quality over steps, a panel for each task, with the range of the seeds."""
    return draw_curves(NAME, shown(rows), COLOURS, quality, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return whether selective quality equals that of per-tensor and of dense training, within the seeds."""
    pairs = []
    for model, methods in shown(rows).items():
        if set(METHODS.values()) <= set(methods):
            name = quality(methods["dense"][0])
            own = {label: values(methods[label], name) for label in methods}
            pairs += [
                (f"{model} against {other}", *compared(own["selective"], own[other]), "equal")
                for other in ("per-tensor", "dense")
            ]
    found = [judged_order("ssfusion.fig5.acc_parity", pairs)] if pairs else []
    for key, task in GAINS.items():
        sets = [
            Finals(_finals(methods), _trained(methods), "multi-tensor")
            for model, methods in shown(rows).items()
            if task in model
        ]
        claim = f"ssfusion.fig5.{key}.gain"
        found += judged_gaps(sets, {"selective": claim}, {"selective": 1 + number(claim), "multi-tensor": 1.0})
    return found


def finding(rows: list[Row]) -> str:
    """Return how selective quality differs from that of multi-tensor sparsification, for each task."""
    parts = []
    for model, methods in shown(rows).items():
        if {"selective", "multi-tensor"} <= set(methods):
            name = quality(methods["selective"][0])
            _, said = compared(values(methods["selective"], name), values(methods["multi-tensor"], name))
            parts.append(f"{model} ({name}): selective less multi-tensor {said}")
    return "; ".join(parts)


def _finals(methods: dict[str, list[Row]]) -> dict[str, list[float]]:
    """Return the final quality of every method, the inverse where lower is better."""
    finals = {}
    for label, own in methods.items():
        name = quality(own[0])
        found = values(own, name)
        finals[label] = [1 / value for value in found if value] if name == "perplexity" else found
    return finals


def _trained(methods: dict[str, list[Row]]) -> str:
    return trained([row for own in methods.values() for row in own])


def shown(rows: Sequence[Row]) -> dict[str, dict[str, list[Row]]]:
    """Return model -> method -> rows, of each task the longest training that has all methods at one density."""
    tasks = sorted({row.case.model.partition("_")[0] for row in rows})
    own = [
        row
        for task in tasks
        for row in longest([row for row in rows if row.case.model.startswith(task)], method, set(METHODS.values()))
    ]
    return grouped(own, method)


def method(row: Row) -> str:
    """Return how a row's tensors were sparsified, "" for ways that the figure does not show."""
    usual = row.case.memory in (None, "none", "residual") and not row.case.scheme_options
    same = row.case.compressor in (None, "dgc") and row.case.density in (None, DENSITY)
    return METHODS.get(row.case.scheme, "") if usual and same else ""
